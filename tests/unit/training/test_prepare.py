"""What a run warns of before it trains; rows with unknown and missing categories."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature, Target
from dmls_core.intake.column_check import Findings, examine
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.training.prepare import describe_search, prepare, scale_warning
from dmls_core.training.prepared import EDGE_ROWS, edge_rows

FOREST, BOOSTED = ["random-forest-regressor"], ["lightgbm-regressor", "xgboost-regressor"]
TARGET = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize(
    ("scale", "shift", "models", "message"),
    [
        (1, 0, BOOSTED, ""),
        (1e-5, 0, FOREST, ""),
        (1e-5, 0, BOOSTED, "learns reliably"),
        (1e-9, 0, FOREST, "learns reliably"),
        (1e20, 0, FOREST, ""),
        (1e20, 0, BOOSTED, "learns reliably"),
        (1, 1e4, FOREST, ""),
        (1, 1e8, FOREST, "Subtract a constant"),
    ],
)
def test_warns_of_a_target_in_an_unsuitable_unit(scale, shift, models, message):
    found = scale_warning(TARGET * scale + shift, models)

    assert bool(found) is bool(message)
    assert message in found


@pytest.mark.parametrize("columns", [0, 1, 3, 16, 40])
@pytest.mark.parametrize("given", [1, 100])
def test_every_categorical_column_has_an_unknown_and_a_missing_edge(columns, given):
    features = tuple(
        CategoryFeature(f"c{at}", ("a", "unknown"), missing=3.0, unknown=2.0) for at in range(columns)
    )
    encoder = Encoder((NumberFeature("n"), *features), Target("y"))
    rows = {"n": [0.5] * given, **{feature.name: ["a"] * given for feature in features}}

    edges = encoder.transform(edge_rows(encoder, rows))

    assert len(edges) == min(2 * columns, EDGE_ROWS)
    assert all({2, 3} <= set(codes) for codes in edges.T[1:])
    assert (edges[:, 0] == 0.5).all()


DRAW = np.random.default_rng(1)
PASSED = DRAW.integers(0, 2, 1_000)
FARE, TIP = DRAW.lognormal(2, 0.5, 1_000).round(1), DRAW.lognormal(0, 0.5, 1_000).round(2)


@pytest.mark.parametrize(
    ("columns", "target", "note"),
    [
        (
            {"code": [f"{1970 + row % 44} {'PASS' if at else 'FAIL'}" for row, at in enumerate(PASSED)]},
            [str(at) for at in PASSED],
            "code gives y away: take it out of the features, unless it is known before y is.",
        ),
        (
            {"fare": FARE, "total": FARE + TIP + DRAW.choice([2.5, 3], 1_000, p=[0.7, 0.3])},
            TIP,
            "fare and total together give y away, which is a weighted sum of them in most rows",
        ),
    ],
    ids=["code", "total"],
)
def test_admission_and_training_note_the_same_leaks(columns, target, note, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pl.DataFrame({"age": DRAW.normal(size=1_000), **columns, "y": target}).write_csv(path)
    kind = "classifier" if "code" in columns else "regressor"
    spec = load_spec(f'model = "random-forest-{kind}"\nn_trials = 2\n[columns]\ntarget = "y"\n'.encode())

    warnings = prepare(spec, CATALOGUE[spec.model], [path]).warnings

    assert [warning[: len(note)] for warning in warnings] == [note]
    assert tuple(Findings.from_json(examine([str(path)], spec.as_json(), "all")).notes) == warnings


def test_a_search_is_described_by_what_it_varies():
    def prepared(name: str, *searched: str, warm: bool = False) -> SimpleNamespace:
        candidate = SimpleNamespace(space=SimpleNamespace(searched=dict.fromkeys(searched)), warm_start=warm)
        return SimpleNamespace(candidate=candidate, task=SimpleNamespace(model=SimpleNamespace(name=name)))

    models = [prepared("a", "max_depth", warm=True), prepared("b")]
    job = SimpleNamespace(models=[*(one.task for one in models), prepared("c").task])
    assert describe_search(job, models).split("; ") == [
        "searching max_depth of a, the champion's values first",
        "no search, but the spec's values, for b",
        "skipping c: not worth its time on this data",
    ]
