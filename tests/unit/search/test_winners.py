"""What a finished search serves: the model of the best trial, or the mean of the best boosters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmls_core.errors import DataError
from dmls_core.models import CATALOGUE, METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.search.candidate import ModelCandidate, make_candidate
from dmls_core.search.task import Space
from dmls_core.search.trial import Trial
from dmls_core.search.winners import pick_winners
from dmls_core.spec import Range
from tests.unit.search.boosting.test_objective import make_task

LIGHTGBM, XGBOOST, CATBOOST, FOREST = (
    f"{family}-classifier" for family in ("lightgbm", "xgboost", "catboost", "random-forest")
)
SPACE = Space({"max_depth": Range(min=2, max=9)}, {"n_estimators": 20})


def candidates(metric: str, classes: int = 2, **changes: Any) -> list[ModelCandidate]:
    """Return one of each family; their tasks share all data but for ``changes`` of CatBoost's."""
    task = make_task("lightgbm", classes, metric)
    found = []
    for name in (LIGHTGBM, XGBOOST, CATBOOST, FOREST):
        own = replace(task, model=CATALOGUE[name], engine=load_engine("cpu", name))
        if name == CATBOOST:
            own = replace(own, **changes)
        found.append(make_candidate("auto", own, SPACE, 9))
    return found


def picked(
    scores: dict[str, float], metric: str = "log_loss", state: str = "complete", **changes: Any
) -> list[str]:
    """Return the models of ``pick_winners``, given the score of each model's best trial."""
    sign = 1 if METRICS[metric].direction == "maximize" else -1
    trials = []
    for name, score in scores.items():
        for worse in (0.2, 0.0):  # the best trial is the second one
            number = len(trials)
            trials.append(
                Trial(number, state, "cpu", {"max_depth": 2 + number}, score - sign * worse, model=name)
            )
    winners = pick_winners(candidates(metric, **changes), trials)
    for candidate, outcome in winners:
        assert outcome.best.value == scores[candidate.model]
        assert outcome.best.model == candidate.model
        assert outcome.params == {"n_estimators": 20, **outcome.best.params}
        assert outcome.trials == tuple(trials)
    return [candidate.model for candidate, _ in winners]


def test_boosters_with_similar_errors_are_averaged_the_best_one_first():
    assert picked({LIGHTGBM: 0.41, XGBOOST: 0.4, CATBOOST: 0.47}) == [XGBOOST, LIGHTGBM, CATBOOST]
    assert picked({LIGHTGBM: 0.41, XGBOOST: 0.4, CATBOOST: 0.49}) == [XGBOOST, LIGHTGBM]
    assert picked({LIGHTGBM: 0.4, XGBOOST: 0.4}) == [LIGHTGBM, XGBOOST]


def test_an_error_is_what_a_score_lacks():
    assert picked({LIGHTGBM: 0.9, XGBOOST: 0.89, CATBOOST: 0.87}, "roc_auc") == [LIGHTGBM, XGBOOST]


def test_a_much_better_booster_wins_alone():
    assert picked({LIGHTGBM: 0.5, XGBOOST: 0.4}) == [XGBOOST]


@pytest.mark.parametrize(("forest", "alone"), [(0.385, True), (0.392, False), (0.5, False)])
def test_a_forest_wins_if_it_is_better_than_the_mean_probably_is(forest: float, alone: bool):
    expected = [FOREST] if alone else [XGBOOST, LIGHTGBM]
    assert picked({LIGHTGBM: 0.41, XGBOOST: 0.4, FOREST: forest}) == expected


@pytest.mark.parametrize(("forest", "winner"), [(0.399, FOREST), (0.401, LIGHTGBM)])
def test_with_one_booster_scores_count_as_they_are(forest: float, winner: str):
    assert picked({LIGHTGBM: 0.4, FOREST: forest}) == [winner]


@pytest.mark.parametrize(
    ("forest", "metric", "alone"),
    [(0.35, "log_loss", True), (0.38, "log_loss", False), (0.65, "accuracy", True)],
)
def test_of_several_classes_a_forest_needs_a_far_lower_log_loss(forest: float, metric: str, alone: bool):
    boosters = {LIGHTGBM: 0.41, XGBOOST: 0.4} if metric == "log_loss" else {LIGHTGBM: 0.59, XGBOOST: 0.6}
    expected = [FOREST] if alone else [XGBOOST, LIGHTGBM]
    assert picked({**boosters, FOREST: forest}, metric, classes=3) == expected
    assert picked({XGBOOST: boosters[XGBOOST], FOREST: forest}, metric, classes=3) == expected[:1]


def test_only_models_of_the_same_matrix_are_averaged():
    other = make_task("catboost").features
    scores = {LIGHTGBM: 0.41, XGBOOST: 0.4, CATBOOST: 0.405}
    assert picked(scores, features=other) == [XGBOOST, LIGHTGBM]
    assert picked({**scores, CATBOOST: 0.39}, features=other) == [CATBOOST]


def test_without_a_complete_trial_it_says_why():
    with pytest.raises(DataError, match="no trial is complete"):
        picked({LIGHTGBM: 0.4}, state="pruned")
