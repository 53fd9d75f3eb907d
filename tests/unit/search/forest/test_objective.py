"""One configuration as a trial by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmls_core.errors import DataError
from dmls_core.search import Space
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.forest import NestedForestSearcher
from dmls_core.search.forest.objective import ForestObjective
from dmls_core.search.strategies import SearchStrategy
from dmls_core.spec import Range
from tests.unit.search.forest.conftest import SPACE, make_task

STRUCTURE = {"max_features": "sqrt", "min_samples_leaf": 1}


def never(*_: object) -> bool:
    return False


@pytest.fixture
def space() -> Space:
    return Space.of(SPACE | {"n_estimators": Range(min=4, max=200)})


def test_only_what_needs_a_forest_of_its_own_is_suggested(space: Space):
    evaluator = ForestObjective(make_task(), space)
    assert set(evaluator.suggested(space).searched) == set(STRUCTURE)


def test_a_trial_that_is_not_given_up_has_grown_to_the_end(space: Space):
    task = make_task()
    trial = ForestObjective(task, space).evaluate(task, space, 7, STRUCTURE, should_prune=never, stop=never)

    assert trial is not None
    assert (trial.number, trial.state, trial.steps) == (7, "complete", 200)
    assert set(trial.params) == set(SPACE)
    assert trial.surface is not None
    assert trial.value in trial.surface.values[-6:]
    assert trial.params["n_estimators"] == 200
    assert trial.value > 0.5
    assert len(trial.intermediate_values) > 1


def test_it_is_given_up_by_the_scores_of_its_rungs(space: Space):
    task = make_task()
    asked: list[tuple[int, float]] = []

    def should_prune(step: int, score: float) -> bool:
        asked.append((step, score))
        return True

    trial = ForestObjective(task, space).evaluate(
        task, space, 0, STRUCTURE, should_prune=should_prune, stop=never
    )

    assert trial is not None
    assert trial.state == "pruned"
    assert trial.steps is not None
    assert trial.steps < 200
    assert asked == [(1, trial.intermediate_values[0])]


def test_it_stops_between_rungs_and_leaves_no_trial(space: Space):
    task = make_task()
    evaluator = ForestObjective(task, space)
    assert evaluator.evaluate(task, space, 0, STRUCTURE, should_prune=never, stop=lambda: True) is None


def test_what_cannot_be_scored_is_a_failed_trial(space: Space):
    def refuses(_truth: object, _prediction: object) -> float:
        raise DataError("not defined")

    task = replace(make_task(), score=refuses)

    trial = ForestObjective(task, space).evaluate(task, space, 0, STRUCTURE, should_prune=never, stop=never)

    assert trial is not None
    assert (trial.state, trial.message) == ("failed", "not defined")


@pytest.mark.parametrize(("sampler", "pruning"), [("tpe", "halving"), ("grid", "none"), ("cma-es", "none")])
def test_an_arm_takes_it_from_the_searcher(space: Space, sampler, pruning):
    candidate = ModelCandidate.of(make_task(), space, NestedForestSearcher(SearchStrategy(sampler)))
    assert isinstance(candidate.evaluator, ForestObjective)
    assert candidate.plan == SearchStrategy(sampler, pruning)
