"""Examples of errors and the worst segments, for the page of a run."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder, NumberFeature, Target
from dmls_core.evaluate.diagnostics import diagnose
from dmls_core.evaluate.insight import EXAMPLES, MAX_CELLS, MAX_SEGMENTS, describe_insight
from tests.unit.evaluate.evidence import Case, evidence


def encoder_of(case: Case) -> Encoder:
    return Encoder(tuple(map(NumberFeature, case.names)), Target("y", tuple(case.labels or ()) or None))


def insight_of(case: Case, leave_out: tuple[str, ...] = ()) -> dict:
    diagnostics = diagnose(case.evidence, case.predict, trees=1)
    found = describe_insight(case.evidence, diagnostics, encoder_of(case), leave_out)
    json.dumps(found, allow_nan=False)
    return found


def test_every_cell_of_the_confusion_matrix_has_examples():
    case = Case(3)
    found = insight_of(case)
    confusion = np.array(case.scores.confusion)
    assert {(cell["true"], cell["predicted"]): cell["rows"] for cell in found["cells"]} == {
        (int(true), int(code)): int(confusion[true, code]) for true, code in np.argwhere(confusion)
    }
    for cell in found["cells"]:
        assert len(cell["examples"]) == min(EXAMPLES, cell["rows"])
        sure = [example["probability"] for example in cell["examples"]]
        # Of errors the most confident rows, of correct predictions the least confident ones.
        assert sure == sorted(sure, reverse=cell["true"] != cell["predicted"])
        for example in cell["examples"]:
            assert any(np.allclose(example["values"], row, rtol=1e-4) for row in case.evidence.test)
    assert found["mean_loss"] == pytest.approx(1 - np.trace(confusion) / confusion.sum())
    assert sum(found["losses"]) == confusion.sum() - np.trace(confusion)


def test_sensitive_columns_have_no_examples_and_many_classes_are_bounded():
    found = insight_of(Case(40, features=30), leave_out=("f0", "f1"))
    assert len(found["cells"]) <= MAX_CELLS
    assert len(found["columns"]) == 12
    assert not {"f0", "f1"} & {*found["columns"], *(segment["feature"] for segment in found["segments"])}


def test_a_regression_has_its_worst_rows():
    case = Case(0)
    found = insight_of(case)
    errors = np.abs(case.evidence.prediction - case.evidence.test_target)
    worst = [abs(row["true"] - row["predicted"]) for row in found["worst"]]
    assert worst == pytest.approx(sorted(errors, reverse=True)[: len(worst)], rel=1e-3)
    assert found["cells"] == []
    assert sum(found["residuals"]["rows"]) == len(errors)


def test_a_segment_that_is_much_worse_is_found_by_its_category():
    draw = np.random.default_rng(1)
    town, noise = draw.integers(0, 4, 800).astype(np.float32), draw.normal(size=800).astype(np.float32)
    truth = draw.integers(0, 2, 800)
    wrong = np.where(town == 2, draw.random(800) < 0.5, draw.random(800) < 0.05)
    prediction = np.eye(2)[np.where(wrong, 1 - truth, truth)]
    x = np.stack([town, noise], axis=1)
    features = (CategoryFeature("town", ("Bern", "Rome", "Oslo", "Kyiv")), NumberFeature("noise"))
    found = evidence(x, truth, prediction, rows=800, train=x, train_target=truth, features=["town", "noise"])
    encoder = Encoder(features, Target("y", ("no", "yes")))
    diagnostics = diagnose(found, lambda rows: np.eye(2)[(rows[:, 0] > 1).astype(int)], trees=1)
    (segment,) = describe_insight(found, diagnostics, encoder)["segments"]
    assert (segment["feature"], segment["values"]) == ("town", "Oslo")
    assert segment["loss"] == pytest.approx(wrong[town == 2].mean(), rel=1e-4)


def test_a_date_is_one_column_of_the_examples_and_segments_name_its_days():
    date, draw = DateFeature("ordered", times=True), np.random.default_rng(3)
    spread = [f"2024-{month:02}-{day:02} {day % 24:02}:30" for month in range(1, 13) for day in range(1, 29)]
    x = np.concatenate([date.encode([*spread, None]), draw.normal(size=(337, 1))], axis=1, dtype=np.float32)
    late = x[:, 1] > 9
    found = evidence(
        x, np.zeros(337), np.where(late, 5.0, 0.1), rows=337, train=x, train_target=np.zeros(337)
    )
    encoder = Encoder((date, NumberFeature("price")), Target("y"))
    found = replace(found, features=list(encoder.column_names), importances=np.array([1, 0, 0, 0, 0, 2]))
    diagnostics = diagnose(found, lambda rows: rows[:, 0] * 0.0, trees=1)
    insight = describe_insight(found, diagnostics, encoder)
    assert insight["columns"] == ["price", "ordered"]
    assert insight["worst"][0]["values"][1] == "2024-10-01 01:30:00"
    assert insight["segments"][0] | {"rows": 0} == {
        "feature": "ordered", "values": "above 2024-09-28", "rows": 0, "loss": 5.0
    }  # fmt: skip


def test_noise_has_few_segments():
    """Three standard errors keep chance away."""
    draw = np.random.default_rng(2)
    x, truth = draw.normal(size=(600, 25)).astype(np.float32), draw.normal(size=600)
    found = evidence(x, truth, np.zeros(600), rows=600, train=x, train_target=truth)
    encoder = Encoder(tuple(map(NumberFeature, found.features)), Target("y"))
    diagnostics = diagnose(found, lambda rows: rows[:, 0] * 0.0, trees=1)
    assert len(describe_insight(found, diagnostics, encoder)["segments"]) <= 1 < MAX_SEGMENTS
