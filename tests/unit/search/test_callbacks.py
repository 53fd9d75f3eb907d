"""Early stopping."""

from __future__ import annotations

import pytest

from dmls_core.search.callbacks import early_stopping
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.objective import CrossValidation
from dmls_core.search.optimize import search
from dmls_core.search.task import Space
from dmls_core.search.trial import Trial
from dmls_core.spec import Range
from dmls_core.spec.tables import EarlyStop, Search
from tests.unit.search.conftest import make_task, unpruned


def trials(
    *values: float | None, pruned: tuple[int, ...] = (), repeated: tuple[int, ...] = ()
) -> list[Trial]:
    return [
        Trial(
            number,
            "failed" if value is None else "pruned" if number in pruned else "complete",
            "cpu",
            {},
            value,
            same_as=0 if number in repeated else None,
        )
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("rules", "values", "should_stop"),
    [
        ({"trials": 3}, (0.5, 0.9, 0.8, 0.7), False),
        ({"trials": 3}, (0.5, 0.9, 0.8, 0.7, 0.9), True),
        ({"trials": 3}, (0.9, 0.8, None, 0.7), False),
        ({"trials": 2, "tolerance": 0.05}, (0.9, 0.92, 0.94), True),
        ({"trials": 2, "tolerance": 0.05}, (0.9, 0.92, 0.96), False),
        ({"target": 0.95}, (0.9, 0.94), False),
        ({"target": 0.95}, (0.9, 0.95, 0.1), True),
        ({"converged": 3, "tolerance": 0.01}, (0.90, 0.5, 0.905, 0.3), False),
        ({"converged": 3, "tolerance": 0.01}, (0.90, 0.5, 0.905, 0.909), True),
        ({"converged": 2, "target": 0.99}, (0.9, 0.9), True),
        ({"trials": 1}, (), False),
        ({"trials": 1}, (None, None), False),
    ],
)
def test_each_rule(rules, values, should_stop):
    assert early_stopping(EarlyStop(**rules), "maximize")(trials(*values)) is should_stop
    mirrored = EarlyStop(**rules | ({"target": -rules["target"]} if "target" in rules else {}))
    negated = [None if value is None else -value for value in values]
    assert early_stopping(mirrored, "minimize")(trials(*negated)) is should_stop


def test_pruned_trials_count_but_their_scores_do_not():
    should_stop = early_stopping(EarlyStop(trials=2, target=0.95), "maximize")

    assert not should_stop(trials(0.9, 0.99, pruned=(1,)))
    assert should_stop(trials(0.9, 0.99, 0.98, pruned=(1, 2)))
    assert not should_stop(trials(0.7, 0.8, 0.9, pruned=(0, 1, 2)))


def test_one_trial_and_its_repeats_are_no_convergence():
    should_stop = early_stopping(EarlyStop(converged=2), "maximize")

    assert not should_stop(trials(0.9, 0.9, repeated=(1,)))


def test_a_number_means_trials_without_a_better_score():
    assert (
        Search(early_stop=7).early_stop == EarlyStop(trials=7) == Search(early_stop={"trials": 7}).early_stop
    )
    assert Search().early_stop is None


def test_a_search_ends_where_a_resumed_one_does():
    task = make_task(lambda p: -abs(p["n_estimators"] - 60))
    space = Space({"n_estimators": Range(min=50, max=500)}, {})
    models = [ModelCandidate(CrossValidation(task, space), unpruned("tpe"))]
    should_stop = early_stopping(EarlyStop(trials=6), "maximize")

    _, whole = search(models, 200, should_stop=should_stop)
    _, resumed = search(models, 200, should_stop=should_stop, earlier_trials=whole.trials[:3])

    assert whole.best.number + 6 == len(whole.trials) - 1 < 199
    assert [trial.params for trial in resumed.trials] == [trial.params for trial in whole.trials]
