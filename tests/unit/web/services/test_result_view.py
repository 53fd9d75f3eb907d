"""The answers of a run's page."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_core.web.services.result_view import MAX_MATRIX, MAX_PAIRS, describe_result


def result(**changes: Any) -> dict[str, Any]:
    return {
        "metric": "accuracy",
        "direction": "maximize",
        "score": 0.9,
        "labels": ["no", "yes"],
        "tuned": ["max_depth"],
        "best_params": {"max_depth": 3, "verbose": 0},
        "holdout": {"interval": [0.85, 0.95], "confusion": [[60, 4], [6, 30]]},
        "permutation": {"age": 0.1, "noise": -0.01},
    } | changes


def test_only_tuned_parameters_are_shown_first():
    found = describe_result(result(), {})
    assert (found.parameters, found.others) == ({"max_depth": 3}, {"verbose": 0})
    old = describe_result(result(tuned=None), {})
    assert old.others == {}


@pytest.mark.parametrize(
    ("direction", "interval", "kind"),
    [
        ("maximize", [0.85, 0.95], "good"),
        ("maximize", [0.7, 0.95], "warn"),
        ("minimize", [0.85, 0.95], "bad"),
    ],
)
def test_the_verdict_compares_the_interval_with_the_baseline(direction, interval, kind):
    holdout = {"interval": interval, "confusion": [[60, 4], [6, 30]]}
    found = describe_result(result(direction=direction, holdout=holdout), {"baseline": 0.8})
    assert found.verdict[1] == kind


def test_scores_share_one_scale():
    comparison = {"comparable": True, "champion_score": 0.88, "champion_version": 1}
    found = describe_result(result(comparison=comparison), {"baseline": 0.6})
    assert found.scale.baseline < found.scale.interval[0] < found.scale.champion < found.scale.score
    assert found.scale.score < found.scale.interval[1] <= 100
    assert found.champion == comparison


def test_cells_lead_to_their_examples():
    cells = [{"true": 1, "predicted": 0, "rows": 6, "examples": []}]
    found = describe_result(result(), {"cells": cells})
    assert found.wrong == 10
    assert [[cell.examples for cell in row] for row in found.matrix] == [[None, None], [0, None]]
    assert [[cell.shade for cell in row] for row in found.matrix] == [[5, 1], [1, 5]]


def test_many_classes_are_listed_by_pairs():
    size = MAX_MATRIX + 5
    confusion = [
        [9 if row == column else (row + column) % 3 for column in range(size)] for row in range(size)
    ]
    holdout = {"interval": None, "confusion": confusion}
    found = describe_result(result(labels=[str(at) for at in range(size)], holdout=holdout), {})
    assert found.matrix == ()
    assert len(found.pairs) == MAX_PAIRS
    assert {cell.rows for cell in found.pairs} == {2}


def test_bars_of_features_and_the_calibration_gap():
    calibration = {"predicted": [0.2, 0.8], "observed": [0.3, 0.8], "rows": [10, 30]}
    insight = {"permutation": [["age", 0.1, 0.02], ["noise", -0.01, 0.0]], "calibration": calibration}
    found = describe_result(result(), insight)
    assert [(driver.name, driver.loss, driver.width) for driver in found.drivers] == [
        ("age", "0.1000 ± 0.0200", 100.0),
        ("noise", "-0.0100 ± 0.0000", 0.0),
    ]
    assert found.calibration_gap == pytest.approx(0.025)
