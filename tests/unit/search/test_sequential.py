"""The plain search: what counts as a trial, what is paid, what is resumed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmls_core.errors import DataError
from dmls_core.search import SequentialSearcher, Space, Trial
from dmls_core.search.choose import PLANS
from dmls_core.search.cross_validation import CrossValidation
from dmls_core.spec import Choice, Range
from tests.unit.search.conftest import make_task, refuses

TREES = Range(min=50, max=500)
SPACE = Space({"n_estimators": TREES, "criterion": Choice(values=("gini", "entropy"))}, {"max_depth": 9})
STRATEGIES = ["tpe", "random", "grid"]


def run(task, space=SPACE, n_trials=8, strategy="tpe", *, stop=lambda: False, **options):
    kept: list[Trial] = []
    outcome = SequentialSearcher(PLANS[strategy], CrossValidation()).run(
        task, space, n_trials, on_trial=kept.append, stop=stop, **options
    )
    return outcome, kept


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_runs_as_many_trials_as_asked_and_keeps_each(peak, strategy):
    task = make_task(peak)

    outcome, kept = run(task, strategy=strategy)

    assert [trial.number for trial in kept] == list(range(8))
    assert tuple(kept) == outcome.trials
    assert outcome.finished == 8
    assert outcome.best.value == max(trial.value for trial in kept)
    assert outcome.params == {"max_depth": 9, **outcome.best.params}
    assert all(len(trial.values) == 2 for trial in kept)
    assert all(fit["max_depth"] == 9 for fit in task.engine.fits)


@pytest.mark.parametrize("strategy", ["halving", "cma-es"])
def test_losers_are_given_up_by_halving_alone(peak, strategy):
    space = Space({"n_estimators": TREES, "max_depth": Range(min=1, max=9)}, {"criterion": "gini"})
    outcome, kept = run(make_task(peak), space, n_trials=12, strategy=strategy)

    pruned = [trial for trial in kept if trial.state == "pruned"]
    assert outcome.scored == 12
    assert bool(pruned) is (strategy == "halving")
    assert all((trial.steps, len(trial.values)) == (1, 1) for trial in pruned)
    assert outcome.best not in pruned


def test_tpe_finds_the_peak_better_than_chance(peak):
    tpe = run(make_task(peak), n_trials=60)[0].best.value
    assert tpe > 0.9


@pytest.mark.parametrize("strategy", [*STRATEGIES, "halving", "cma-es"])
@given(cut=st.integers(0, 15))
@settings(max_examples=8, deadline=None)
def test_a_resumed_search_goes_on_as_if_nothing_had_happened(strategy, cut):
    def score(p):
        if p["n_estimators"] % 5 == 0:
            raise DataError("refused")
        return p["n_estimators"] / 500 - (p["criterion"] == "gini")

    whole, _ = run(make_task(score), n_trials=12, strategy=strategy)
    text = json.dumps([trial.as_json() for trial in whole.trials[:cut]])
    done = [Trial.from_json(trial) for trial in json.loads(text)]

    task = make_task(score)
    resumed, kept = run(task, n_trials=12, strategy=strategy, done=done[::-1])

    assert [(t.params, t.value, t.state) for t in resumed.trials] == [
        (t.params, t.value, t.state) for t in whole.trials
    ]
    assert len(kept) == len(whole.trials) - len(done)
    paid = {json.dumps(t.params, sort_keys=True) for t in done}
    again = [
        f for f in task.engine.fits if json.dumps({k: f[k] for k in ("criterion", "n_estimators")}) in paid
    ]
    assert not again


def test_the_same_hyperparameters_are_fitted_once():
    space = Space({"criterion": Choice(values=("gini", "entropy"))}, {})
    task = make_task(lambda p: len(p["criterion"]))

    outcome, _ = run(task, space, n_trials=10)

    assert outcome.finished == 10
    assert len(task.engine.fits) == 2 * len(task.folds)
    repeated = [trial for trial in outcome.trials if trial.same_as is not None]
    assert len(repeated) == 8
    for trial in repeated:
        assert trial.value == outcome.trials[trial.same_as].value
        assert trial.params == outcome.trials[trial.same_as].params


def test_nothing_to_search_is_one_trial():
    outcome, kept = run(make_task(lambda _: 0.5), Space({}, {"max_depth": 3}), n_trials=5)

    assert len(kept) == 1
    assert outcome.params == {"max_depth": 3}


def test_values_that_equal_each_other_in_python_stay_apart():
    space = Space({"max_features": Choice(values=(1, 1.0, "sqrt"))}, {})
    task = make_task(lambda p: float(isinstance(p["max_features"], float)))

    outcome, _ = run(task, space, n_trials=20)

    seen = {(type(fit["max_features"]), fit["max_features"]) for fit in task.engine.fits}
    assert seen == {(int, 1), (float, 1.0), (str, "sqrt")}
    assert type(outcome.best.params["max_features"]) is float
    resumed, _ = run(task, space, n_trials=20, done=outcome.trials[:10])
    assert [t.params for t in resumed.trials] == [t.params for t in outcome.trials]


def test_failed_trials_do_not_count_but_are_kept():
    def score(p):
        if p["criterion"] == "gini":
            raise DataError("gini is out")
        return 1.0

    outcome, kept = run(make_task(score), n_trials=6, strategy="random")

    failed = [trial for trial in kept if trial.state == "failed"]
    assert failed
    assert outcome.finished == 6
    assert all(trial.message == "gini is out" and trial.value is None for trial in failed)


def test_a_search_in_which_everything_fails_gives_up_and_says_why():
    task = make_task(refuses("max_features is larger than the number of columns"))

    with pytest.raises(DataError, match="no trial finished: max_features is larger"):
        run(task, n_trials=1000, strategy="random")

    assert len(task.engine.fits) == 10


def test_stop_ends_the_search_between_folds(peak):
    task = make_task(peak)
    answers = iter([False, False, False, True])

    outcome, kept = run(task, stop=lambda: next(answers, True))

    assert len(kept) == 1
    assert outcome.best.number == 0
    assert len(task.engine.fits) == 3


def test_stop_before_the_first_trial_ends(peak):
    with pytest.raises(DataError, match="stopped before the first one ended"):
        run(make_task(peak), stop=lambda: True)


def test_timeout_counts_what_was_spent_before_and_lets_one_trial_run(peak):
    earlier = run(make_task(peak), n_trials=2)[1]
    slow = [Trial.from_json(trial.as_json() | {"seconds": 40.0}) for trial in earlier]

    assert len(run(make_task(peak), timeout=1e-9)[1]) == 1
    assert run(make_task(peak), timeout=60, done=slow)[1] == []
    assert len(run(make_task(peak), timeout=600, done=slow)[1]) == 6


def test_minimising(peak):
    outcome, _ = run(make_task(lambda p: -peak(p), direction="minimize"), n_trials=30)

    assert outcome.best.value == min(trial.value for trial in outcome.trials)
    assert outcome.best.params["criterion"] == "entropy"


def test_of_equal_trials_the_first_wins():
    outcome, _ = run(make_task(lambda _: 1.0))

    assert outcome.best.number == 0


@pytest.mark.parametrize(
    "wanted",
    [
        Range(min=1, max=1000, log=True),
        Range(min=0.001, max=1.0, log=True),
        Range(min=0.1, max=0.5, step=0.1),
        Range(min=10, max=105, step=10),
        Range(min=0.0, max=1.0),
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranges_are_kept_to(wanted, strategy, recwarn):
    space = Space({"n_estimators": wanted}, {})
    task = make_task(lambda p: p["n_estimators"])

    _, kept = run(task, space, n_trials=15, strategy=strategy)

    values = [trial.params["n_estimators"] for trial in kept]
    assert all(wanted.min <= value <= wanted.max + 1e-9 for value in values)
    assert all(isinstance(value, int) is wanted.integer for value in values)
    if wanted.step:
        steps = [(value - wanted.min) / wanted.step for value in values]
        assert steps == pytest.approx([round(step) for step in steps])
    assert not recwarn.list


def test_trials_survive_json_and_strangers_do_not():
    trial = Trial(3, "complete", "cpu", {"criterion": "gini"}, 0.5, (0.4, 0.6), 1.5, same_as=1)

    assert Trial.from_json(json.loads(json.dumps(trial.as_json()))) == trial
    for stranger in ({}, {"schema": 2}, {"schema": 1, "number": 1}, []):
        with pytest.raises(ValueError, match=r"trial|argument"):
            Trial.from_json(stranger)
