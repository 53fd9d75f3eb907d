"""What the report says about the search."""

from __future__ import annotations

import pytest

from dmls_core.evaluate.report.search_section import other_rounds_note, scoring_method
from tests.unit.evaluate.evidence import trial


@pytest.mark.parametrize(
    ("values", "forest", "out_of_bag", "expected"),
    [
        ([0.9], True, True, "out-of-bag rows"),
        ([0.9], True, False, "the first of 3 folds"),
        ([0.8, 0.9, 1.0], True, True, "3 folds (mean)"),
        ([0.9], False, True, "3 folds (mean)"),
    ],
)
def test_the_report_says_which_rows_score_the_trials(
    values: list[float], forest: bool, out_of_bag: bool, expected: str
):
    trials, options = [trial(0, 0.9, values=values)], {"forest": forest, "out_of_bag": out_of_bag, "folds": 3}
    assert scoring_method(trials, **options).startswith(expected)
    oversampled = scoring_method(trials, oversampled=True, **options)
    assert ("too often" in oversampled) == (expected == "out-of-bag rows")
    assert scoring_method(trials, nodes=True, **options).startswith("the rows of other nodes") == (
        expected != "3 folds (mean)"
    )


def test_a_model_with_other_rounds_than_its_trial_is_explained():
    model = {"n_estimators": 158, "learning_rate": 0.05}
    result = {"model": "lightgbm-classifier", "best_trial": 9, "best_params": model}
    trials = [{"number": number, "params": {"n_estimators": rounds}} for number, rounds in ((8, 20), (9, 79))]

    (note,) = other_rounds_note(result, trials)

    assert "158 rounds at a learning rate of 0.05" in note
    assert "its trial of 79 rounds" in note
    shorter = {**result, "best_params": {"n_estimators": 50, "learning_rate": 0.2}}
    (faster,) = other_rounds_note(shorter, trials)
    assert other_rounds_note({**shorter, "compact": {"trees": 50}}, trials) == []
    assert "50 rounds at a learning rate of 0.2, as its trial had, whose 79 rounds" in faster
    assert other_rounds_note({**result, "best_trial": 8, "best_params": {"n_estimators": 20}}, trials) == []
    assert other_rounds_note({**result, "model": "random-forest-classifier"}, trials) == []
    assert other_rounds_note({**result, "ensemble": {"members": []}}, trials) == []
