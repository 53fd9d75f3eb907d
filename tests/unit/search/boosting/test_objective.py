"""Boosted trees: scores by rounds, pruning, resuming."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.errors import DataError
from dmls_core.models import CATALOGUE, METRICS
from dmls_core.models.engines.xgboost import XGBoostEngine
from dmls_core.search.boosting import shrinkage
from dmls_core.search.boosting.learning_curve import (
    RUNGS,
    SCORED_ROUNDS,
    has_plateaued,
    rung_rounds,
    scored_rounds,
)
from dmls_core.search.boosting.objective import MAX_FOLDS, BinnedFolds, BoostingObjective
from dmls_core.search.boosting.shrinkage import Shrinkage
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.task import SearchTask, Space
from dmls_core.search.trial import Trial
from dmls_core.spec import Choice, Range
from tests.support.search_task import search_task

FAMILIES = ["xgboost", "lightgbm"]
ROUNDS = Range(min=5, max=40)
SPACE = Space(
    {
        "n_estimators": ROUNDS,
        "learning_rate": Range(min=0.05, max=0.5, log=True),
        "max_depth": Range(min=2, max=5),
        "subsample": Range(min=0.5, max=1.0),
    },
    {"reg_lambda": 2.0},
)


def make_task(family: str, classes: int = 2, metric: str = "", **changes: Any) -> SearchTask:
    generator = np.random.default_rng(classes)
    features = generator.normal(size=(180, 5)).astype(np.float32)
    value = features[:, 0] + features[:, 1] * features[:, 2] + 0.5 * generator.normal(size=180)
    features[generator.random(features.shape) < 0.05] = np.nan
    cuts = np.quantile(value, np.arange(1, classes) / classes) if classes else []
    target = np.digitize(value, cuts).astype(np.int32) if classes else value
    name = f"{family}-{'classifier' if classes else 'regressor'}"
    return replace(search_task(name, features, target, classes, metric), **changes)


def evaluate(task: SearchTask, params: dict[str, Any], space: Space = SPACE, **options: Any) -> Trial | None:
    options = {"should_prune": lambda _steps, _score: False, "stop": lambda: False} | options
    return BoostingObjective(task, space).evaluate(0, params, **options)


def run(task: SearchTask, strategy: str = "auto", n_trials: int = 8, space: Space = SPACE, **options: Any):
    kept: list[Trial] = []
    models = [make_candidate(strategy, task, space, n_trials)]
    return search(models, n_trials, on_trial=kept.append, **options)[1], kept


def timeless(trials: Any) -> list[Any]:
    """Return what must not depend on interruptions."""
    return [replace(trial, seconds=0.0) for trial in trials]


PARAMS = {"learning_rate": 0.1, "max_depth": 3, "subsample": 0.8}


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_score_is_that_of_boosters_really_fitted_so(family, classes):
    task = make_task(family, classes)
    trial = evaluate(task, PARAMS)
    (sizes,) = trial.surface.axes.values()
    assert sizes[0] == 5
    assert trial.value == pytest.approx(max(trial.surface.values))
    assert trial.params.keys() == {*PARAMS, "n_estimators"}
    assert trial.surface.values[sizes.index(trial.params["n_estimators"])] == pytest.approx(trial.value)

    for place in (0, len(sizes) // 2, -1):
        scores = []
        for fold in task.folds:
            fitted = task.engine.fit(
                task.model,
                {**SPACE.fixed, **PARAMS, "n_estimators": sizes[place]},
                task.features[fold.train],
                task.target[fold.train],
                n_classes=classes,
                seed=0,
                threads=1,
            )
            scores.append(task.score(task.truth[fold.test], fitted.predict(task.features[fold.test])))
        assert trial.surface.values[place] == pytest.approx(np.mean(scores), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_auto_first_tries_the_configurations_of_the_portfolio_that_the_space_contains(family):
    space = Space(
        {"learning_rate": Range(min=0.01, max=0.3, log=True), "reg_lambda": Range(min=0, max=9)}, {}
    )
    points = (
        {"learning_rate": 0.2, "reg_lambda": 1},
        {"learning_rate": 0.4, "reg_lambda": 1},
        {"learning_rate": 0.1},
    )
    task = make_task(family)
    task = replace(
        task, model=replace(task.model, portfolio=(*points, {"learning_rate": 0.3, "reg_lambda": 7}))
    )
    whole, _ = run(task, n_trials=4, space=space)
    assert [trial.params for trial in whole.trials[:2]] == [
        points[0],
        {"learning_rate": 0.3, "reg_lambda": 7},
    ]
    plain, _ = run(task, "tpe", 4, space)
    assert points[0] not in [trial.params for trial in plain.trials]

    resumed, _ = run(task, n_trials=4, space=space, earlier_trials=whole.trials[:1])
    assert timeless(resumed.trials) == timeless(whole.trials)


def test_a_portfolio_leaves_the_learning_rate_to_the_rule_in_a_space_that_searches_it():
    task = make_task("lightgbm")
    task = replace(task, model=replace(task.model, portfolio=({"num_leaves": 9}, {"num_leaves": 5})))
    rates = Range(min=0.02, max=0.2)
    found, _ = run(
        task, n_trials=2, space=Space({"num_leaves": Range(min=4, max=9), "learning_rate": rates}, {})
    )
    assert [trial.params for trial in found.trials] == [
        {"num_leaves": leaves, "learning_rate": Shrinkage.of(180, 2, "lightgbm").rate} for leaves in (9, 5)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_trials_of_an_automatic_rate_learn_faster_than_the_model(family):
    space = Space({"n_estimators": Range(min=40, max=80, step=20)}, {"learning_rate": "auto", "max_depth": 3})
    task = make_task(family)
    candidate = make_candidate("auto", task, space, 1)
    _, outcome = search([candidate], 1)
    rule = Shrinkage.of(180, 2, "lightgbm")
    faster = rule.rate * rule.speedup
    rounds = (40 // rule.speedup, 60 // rule.speedup, 80 // rule.speedup)
    fixed = {"learning_rate": faster, "max_depth": 3}
    exact = evaluate(task, {}, Space({"n_estimators": Choice(values=rounds)}, fixed))
    (trial,) = outcome.trials
    assert trial.surface.axes == {"n_estimators": (40, 60, 80)}
    assert trial.surface.values == exact.surface.values
    assert trial.params == {"n_estimators": exact.params["n_estimators"] * rule.speedup}
    learned = outcome.params["n_estimators"] * outcome.params["learning_rate"]
    assert outcome.params["n_estimators"] == 80
    assert learned == pytest.approx(trial.params["n_estimators"] * rule.rate, rel=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_trials_of_few_rounds_learn_as_fast_as_the_model(family):
    """Otherwise the score of one fast round would belong to a model of one slow round."""
    rounds = Range(min=1, max=6)
    _, outcome = search(
        [
            make_candidate(
                "auto", make_task(family), Space({"n_estimators": rounds}, {"learning_rate": "auto"}), 1
            )
        ],
        1,
    )
    fixed = {"learning_rate": Shrinkage.of(180, 2, "lightgbm").rate}
    exact = evaluate(make_task(family), {}, Space({"n_estimators": rounds}, fixed))
    assert outcome.trials[0].surface.values == exact.surface.values


@pytest.mark.parametrize("metric", ["log_loss", "roc_auc", "f1_macro", "rmse", "median_ae"])
def test_any_metric_is_read_whichever_way_is_better(metric):
    regression = METRICS[metric].task == "regression"
    trial = evaluate(make_task("lightgbm", 0 if regression else 2, metric), PARAMS)

    best = max if METRICS[metric].direction == "maximize" else min
    assert trial.value == pytest.approx(best(trial.surface.values))
    assert trial.value == pytest.approx(np.mean(trial.values))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_answer_in_one_go_or_resumed(family):
    whole, kept = run(make_task(family), n_trials=12)
    assert {"complete", "pruned"} == {trial.state for trial in kept}
    assert len(kept) == whole.scored == 12
    assert whole.best.state == "complete"

    again, _ = run(make_task(family), n_trials=12)
    assert timeless(again.trials) == timeless(whole.trials)
    for cut in (1, 5, 11):
        text = json.dumps([trial.as_json() for trial in whole.trials[:cut]])
        done = [Trial.from_json(trial) for trial in json.loads(text)]
        resumed, paid = run(make_task(family), n_trials=12, earlier_trials=done)

        assert timeless(resumed.trials) == timeless(whole.trials)
        assert [trial.number for trial in paid] == list(range(cut, 12))


@pytest.mark.parametrize("strategy", ["auto", "tpe", "random", "grid", "halving", "cma-es"])
def test_every_strategy_meets_n_trials(strategy):
    outcome, kept = run(make_task("xgboost"), strategy)

    assert len(kept) == outcome.scored == 8
    assert outcome.params.keys() == {*SPACE.searched, *SPACE.fixed}
    assert all(5 <= trial.params["n_estimators"] <= 40 for trial in kept)
    again, _ = run(make_task("xgboost"), strategy, earlier_trials=kept[:4])
    assert timeless(again.trials) == timeless(outcome.trials)


def test_n_estimators_is_read_and_not_suggested():
    assert set(BoostingObjective(make_task("xgboost"), SPACE).suggested.searched) == {
        "learning_rate",
        "max_depth",
        "subsample",
    }
    outcome, kept = run(make_task("xgboost"), space=Space({"n_estimators": ROUNDS}, {}), n_trials=5)
    assert len(kept) == 1
    assert outcome.best.surface is not None


def test_a_fixed_number_of_rounds_stays_what_it_is():
    space = Space({"max_depth": Range(min=2, max=5)}, {"n_estimators": 30})
    trial = evaluate(make_task("xgboost"), {"max_depth": 3}, space)

    assert trial.params == {"max_depth": 3}
    assert trial.surface is None
    assert trial.value == pytest.approx(np.mean(trial.values))


def test_a_pruned_trial_says_how_far_it_came():
    asked: list[tuple[int, float]] = []

    def should_prune(steps: int, score: float) -> bool:
        asked.append((steps, score))
        return steps == RUNGS + 1

    early = evaluate(make_task("xgboost"), PARAMS, should_prune=should_prune)
    whole = evaluate(make_task("xgboost"), PARAMS)

    assert (early.state, early.steps) == ("pruned", RUNGS + 1)
    assert early.value == pytest.approx(asked[RUNGS][1], abs=1e-5)
    grown = max(early.surface.axes["n_estimators"])
    assert early.message == f"pruned after {grown} rounds of the first fold"
    assert (
        early.intermediate_values
        == whole.intermediate_values[: RUNGS + 1]
        == tuple(score for _, score in asked)
    )
    assert (whole.state, whole.steps) == ("complete", RUNGS + 3)


def test_a_trial_is_compared_at_each_rung_before_the_first_fold_is_grown_to_the_end():
    task = make_task("xgboost")
    slow = PARAMS | {"learning_rate": 0.05}
    read = scored_rounds(task.model, SPACE)
    for step, target in enumerate(rung_rounds(0.05, 40), start=1):
        early = evaluate(task, slow, should_prune=lambda steps, _score, at=step: steps == at)

        grown = max(rounds for rounds in read if rounds <= target)
        assert early.message == f"pruned after {grown} rounds of the first fold"
        assert max(early.surface.axes["n_estimators"]) == grown


def test_a_search_that_is_stopped_within_a_trial_keeps_the_others():
    task = make_task("xgboost")
    kept: list[Trial] = []
    asked_since = 0

    def stop() -> bool:
        nonlocal asked_since
        asked_since += len(kept) == 2
        return asked_since > 3

    models = [make_candidate("auto", task, SPACE, 8)]
    _, outcome = search(models, 8, on_trial=kept.append, stop=stop)

    assert asked_since == 5
    assert [trial.number for trial in outcome.trials] == [0, 1]


def test_what_the_library_refuses_is_a_failed_trial():
    class Refusing(XGBoostEngine):
        def place(self, array: Any) -> Any:
            return array

        def binning(self, _model: Any, _params: Any) -> tuple[()]:
            return ()

        def bin(self, *_arguments: Any, **_options: Any) -> Any:
            raise DataError("too many bins")

    trial = evaluate(make_task("xgboost", engine=Refusing()), PARAMS)

    assert (trial.state, trial.message, trial.value) == ("failed", "too many bins", None)


def test_bins_and_weights_can_be_searched_and_do_not_pile_up():
    task = make_task("lightgbm")
    bins = BinnedFolds(task)
    first = bins.get(0, {"max_bin": 15})
    assert bins.get(0, {"max_bin": 15, "num_leaves": 9}) is first
    assert bins.get(0, {"max_bin": 15, "class_weight": "balanced"}) is not first
    for number in range(MAX_FOLDS):
        bins.get(0, {"max_bin": 20 + number})
    assert bins.get(0, {"max_bin": 15}) is not first

    searched = {
        **SPACE.searched,
        "max_bin": Range(min=8, max=64),
        "class_weight": Choice(values=("none", "balanced")),
    }
    outcome, _ = run(task, space=Space(searched, {}))
    assert outcome.scored == 8


@given(low=st.integers(1, 50), width=st.integers(1, 3000), step=st.none() | st.integers(1, 60))
def test_readings_are_legal_ascending_and_few(low, width, step):
    wanted = Range(min=low, max=low + width, step=step)
    found = scored_rounds(CATALOGUE["xgboost-classifier"], Space({"n_estimators": wanted}, {}))

    assert list(found) == sorted(set(found))
    assert 1 <= len(found) <= SCORED_ROUNDS
    assert found[0] == low
    assert found[-1] == low + (step or 1) * (width // (step or 1))
    assert all((value - low) % (step or 1) == 0 for value in found)


def test_all_values_of_a_choice_are_read():
    chosen = Space({"n_estimators": Choice(values=tuple(range(500, 0, -5)))}, {})
    assert scored_rounds(CATALOGUE["xgboost-classifier"], chosen) == tuple(range(5, 501, 5))


def test_slow_learners_get_more_rounds_before_they_are_compared_and_stopped():
    assert rung_rounds(0.3, 500)[0] < rung_rounds(0.03, 500)[0] < rung_rounds(0.01, 500)[0]
    assert rung_rounds(0.01, 500) == (159, 318, 500)
    assert rung_rounds(0.001, 300) == (100, 200, 300)
    assert rung_rounds(1.0, 2) == (1, 2, 2)
    assert rung_rounds(1.0, 1) == (1, 1, 1)
    assert has_plateaued(60, 30, 0.3)
    assert not has_plateaued(60, 40, 0.01)
    assert not has_plateaued(400, 350, 0.3)


@pytest.mark.parametrize(
    ("rows", "most", "step", "rounds", "rate"),
    [
        ("many", 500, None, 120, 0.05),
        ("many", 100, None, 100, 0.06),
        ("many", 99, 20, 80, 0.075),
        ("few", 500, None, 240, 0.0125),
        ("few", 100, None, 100, 0.03),
    ],
)
def test_a_model_learns_as_slowly_as_its_rounds_allow(rows, most, step, rounds, rate, monkeypatch):
    monkeypatch.setattr(shrinkage, "MANY", 100 if rows == "many" else 10_000)
    space = Space({"n_estimators": Range(min=20, max=most, step=step)}, {"learning_rate": "auto"})
    objective = make_candidate("auto", make_task("lightgbm"), space, 1).objective
    found = objective.refit_params(Trial(0, "complete", "cpu", {"n_estimators": 60}, value=0.9))
    assert found == {"n_estimators": rounds, "learning_rate": pytest.approx(rate)}
    assert rate * rounds == pytest.approx((0.1 if rows == "many" else 0.05) * 60)


@pytest.mark.parametrize(
    ("family", "fewest", "rounds", "rate"),
    [("lightgbm", 20, 60, 0.05), ("catboost", 10, 15, 0.2), ("catboost", 20, 20, 0.15)],
)
def test_with_several_classes_models_learn_no_slower(family, fewest, rounds, rate):
    space = Space({"n_estimators": Range(min=fewest, max=500, step=5)}, {"learning_rate": "auto"})
    objective = make_candidate("auto", make_task(family, 3), space, 1).objective
    found = objective.refit_params(Trial(0, "complete", "cpu", {"n_estimators": 60}, value=0.9))
    assert found == {"n_estimators": rounds, "learning_rate": pytest.approx(rate)}


def test_a_model_whose_rate_or_rounds_are_given_keeps_them(monkeypatch):
    monkeypatch.setattr(shrinkage, "MANY", 100)
    trial = Trial(0, "complete", "cpu", {"n_estimators": 60}, value=0.9)
    for searched, fixed in (
        ({"n_estimators": Range(min=20, max=500)}, {"learning_rate": 0.1}),
        ({"n_estimators": Choice(values=(20, 60, 500))}, {"learning_rate": "auto"}),
        ({"n_estimators": Range(min=20, max=500)}, {"learning_rate": "auto", "boosting_type": "dart"}),
    ):
        objective = make_candidate("auto", make_task("lightgbm"), Space(searched, fixed), 1).objective
        assert objective.refit_params(trial).items() >= {"n_estimators": 60, "learning_rate": 0.1}.items()
