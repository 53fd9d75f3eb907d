"""The search loop: trials and repeats, resuming, several models, brackets of successive halving."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmls_core.errors import DataError
from dmls_core.models import CATALOGUE
from dmls_core.search.candidate import ModelCandidate, make_candidate
from dmls_core.search.objective import CrossValidation
from dmls_core.search.optimize import pick_winner, search
from dmls_core.search.samplers.strategy import load_strategy
from dmls_core.search.study.storage import LocalStorage
from dmls_core.search.study.study import SearchStudy
from dmls_core.search.task import Space
from dmls_core.search.trial import Trial
from dmls_core.spec import Choice, Range
from tests.unit.search.conftest import make_task, refuses, unpruned
from tests.unit.search.forest.conftest import make_task as make_forest_task

TREES = Range(min=50, max=500)
SPACE = Space({"n_estimators": TREES, "criterion": Choice(values=("gini", "entropy"))}, {"max_depth": 9})
STRATEGIES = ["tpe", "random", "grid"]


def candidate(task, space=SPACE, strategy="tpe"):
    chosen = load_strategy(strategy) if strategy == "halving" else unpruned(strategy)
    return ModelCandidate(CrossValidation(task, space), chosen)


def run(task, space=SPACE, n_trials=8, strategy="tpe", **options):
    kept: list[Trial] = []
    _, outcome = search([candidate(task, space, strategy)], n_trials, on_trial=kept.append, **options)
    return outcome, kept


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_n_trials_run_and_each_is_kept(peak, strategy):
    task = make_task(peak)

    outcome, kept = run(task, strategy=strategy)

    assert [trial.number for trial in kept] == list(range(8))
    assert tuple(kept) == outcome.trials
    assert outcome.complete == 8
    assert outcome.best.value == max(trial.value for trial in kept)
    assert outcome.params == {"max_depth": 9, **outcome.best.params}
    assert all(len(trial.values) == 2 for trial in kept)
    assert all(fit["max_depth"] == 9 for fit in task.engine.fits)


@pytest.mark.parametrize("strategy", ["halving", "cma-es"])
def test_only_halving_prunes(peak, strategy):
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
    resumed, kept = run(task, n_trials=12, strategy=strategy, earlier_trials=done[::-1])

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

    assert outcome.complete == 10
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
    resumed, _ = run(task, space, n_trials=20, earlier_trials=outcome.trials[:10])
    assert [t.params for t in resumed.trials] == [t.params for t in outcome.trials]


def test_failed_trials_do_not_count_but_are_kept():
    def score(p):
        if p["criterion"] == "gini":
            raise DataError("gini is out")
        return 1.0

    outcome, kept = run(make_task(score), n_trials=6, strategy="random")

    failed = [trial for trial in kept if trial.state == "failed"]
    assert failed
    assert outcome.complete == 6
    assert all(trial.message == "gini is out" and trial.value is None for trial in failed)


def test_a_search_ends_after_ten_failed_trials_in_a_row():
    task = make_task(refuses("max_features is larger than the number of columns"))

    with pytest.raises(DataError, match="no trial is complete: max_features is larger"):
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
    assert run(make_task(peak), timeout=60, earlier_trials=slow)[1] == []
    assert len(run(make_task(peak), timeout=600, earlier_trials=slow)[1]) == 6


@pytest.mark.parametrize("count", [1, 2])
def test_the_time_ends_a_running_trial_at_its_next_step_once_any_is_complete(peak, count):
    field = models(*[peak] * count)
    study = SearchStudy(LocalStorage(), "late", field, 8, read_trials=list, keep=lambda *_: None)
    study.join()
    for _ in range(2):
        _, claim = study.claim(late=False)
        study.run(claim, lambda: False, late=lambda: True)
    assert [(trial.state, trial.steps) for trial in study.trials()] == [("complete", 2), ("pruned", 1)]


def test_a_metric_can_be_minimized(peak):
    outcome, _ = run(make_task(lambda p: -peak(p), direction="minimize"), n_trials=30)

    assert outcome.best.value == min(trial.value for trial in outcome.trials)
    assert outcome.best.params["criterion"] == "entropy"


def test_of_equal_trials_the_first_one_wins():
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
    # Files that earlier tests left open may be collected here.
    assert [str(one.message) for one in recwarn if one.category is not ResourceWarning] == []


def test_trials_survive_json_and_strangers_do_not():
    trial = Trial(3, "complete", "cpu", {"criterion": "gini"}, 0.5, (0.4, 0.6), 1.5, same_as=1)

    assert Trial.from_json(json.loads(json.dumps(trial.as_json()))) == trial
    for stranger in ({}, {"schema": 2}, {"schema": 1, "number": 1}, []):
        with pytest.raises(ValueError, match=r"trial|argument"):
            Trial.from_json(stranger)


def models(*functions, **changes):
    names = ["random-forest-classifier", "extra-trees-classifier", "xgboost-classifier"]
    space = Space({"n_estimators": Range(min=50, max=100_000)}, {})
    return [
        candidate(make_task(function, model=CATALOGUE[name], **changes), space)
        for name, function in zip(names, functions, strict=False)
    ]


def compete(field, n_trials, **options):
    """Return all trials, and those that were kept, in order."""
    kept: list[Trial] = []
    seen: list[Trial] = list(options.get("done", ()))
    try:
        _, outcome = search(field, n_trials, on_trial=kept.append, **options)
    except DataError:
        return sorted([*seen, *kept], key=lambda trial: trial.number), kept
    return list(outcome.trials), kept


def test_the_better_model_gets_the_rest_and_wins():
    field = models(lambda p: p["n_estimators"] / 1e6, lambda p: 1 + p["n_estimators"] / 1e6)

    trials, kept = compete(field, 12)

    winner, outcome = pick_winner(field, trials)
    assert trials == kept
    assert [trial.number for trial in trials] == list(range(12))
    assert Counter(t.model for t in trials) == {"random-forest-classifier": 3, "extra-trees-classifier": 9}
    assert winner is field[1]
    assert outcome.best.value == max(trial.value for trial in trials)
    assert outcome.params == outcome.best.params
    assert len(outcome.trials) == 12


@pytest.mark.parametrize("cut", range(12))
def test_resumed_at_any_trial_it_goes_on_as_it_would_have(cut):
    functions = (lambda p: p["n_estimators"] / 1e6, lambda p: 0.1 - p["n_estimators"] / 1e6)
    whole, _ = compete(models(*functions), 12)
    field = models(*functions)

    trials, kept = compete(field, 12, earlier_trials=whole[:cut])

    def gist(trial: Trial):
        return trial.number, trial.model, trial.params, trial.value

    assert list(map(gist, trials)) == list(map(gist, whole))
    assert [trial.number for trial in kept] == list(range(cut, 12))


def test_a_repeat_points_to_the_number_among_all():
    space = Space({"criterion": Choice(values=("gini", "entropy"))}, {})
    field = [candidate(one.task, space) for one in models(lambda _: 0.1, lambda _: 0.2)]

    trials, _ = compete(field, 12)

    repeats = [trial for trial in trials if trial.same_as is not None]
    assert repeats
    for trial in repeats:
        first = trials[trial.same_as]
        assert (first.model, first.params) == (trial.model, trial.params)


def test_a_model_that_always_fails_leaves_its_trials_to_the_other():
    field = models(refuses("no"), lambda _: 0.5)

    trials, _ = compete(field, 8)

    assert Counter(t.model for t in trials if t.state == "complete") == {"extra-trees-classifier": 8}
    assert pick_winner(field, trials)[0] is field[1]


def test_if_all_fail_it_says_why():
    with pytest.raises(DataError, match="no trial is complete: (no|never)"):
        search(models(refuses("no"), refuses("never")), 4)


def test_every_model_has_a_trial_when_the_time_is_up_or_early_stopping_ends_the_search():
    for options in ({"timeout": 0.0}, {"should_stop": lambda _: True}):
        trials, _ = compete(models(lambda _: 0.1, lambda _: 0.2, lambda _: 0.3), 30, **options)
        assert Counter(trial.model for trial in trials).keys() == {
            "random-forest-classifier",
            "extra-trees-classifier",
            "xgboost-classifier",
        }
        assert len(trials) < 30


def test_stop_ends_a_search_of_several_models_at_once():
    assert compete(models(lambda _: 0.1, lambda _: 0.2), 8, stop=lambda: True) == ([], [])


def forests(n_trials: int) -> list[ModelCandidate]:
    """Return two models whose trials are promoted by successive halving."""
    space = Space.of(
        {
            "n_estimators": Range(min=4, max=60),
            "max_depth": Range(min=1, max=6),
            "max_features": Range(min=0.1, max=1.0),
        }
    )
    names = ("random-forest-classifier", "extra-trees-classifier")
    return [make_candidate("auto", make_forest_task(name), space, n_trials) for name in names]


@pytest.mark.parametrize("late_after", [5, 6, 10, 14])
def test_a_forest_search_ends_when_its_time_is_up_in_any_rung(late_after):
    space = Space.of({"n_estimators": Range(min=100, max=300), "max_features": Range(min=0.1, max=1.0)})
    task = make_forest_task("random-forest-classifier", rows=400)
    candidates = [make_candidate("auto", task, space, 12)]
    study = SearchStudy(LocalStorage(), "late", candidates, 12, read_trials=list, keep=lambda *_: None)
    study.join()
    for number in range(60):
        _, claim = study.claim(late=number >= late_after)
        if claim == "end":
            break
        study.run(claim, lambda: False)
    assert claim == "end"
    assert sum(trial.state == "complete" and trial.same_as is None for trial in study.trials()) == 1


def gist(trials):
    return [(t.number, t.model, t.state, t.params, t.value, t.bracket, t.message) for t in trials]


def test_each_turn_of_a_forest_is_a_bracket_of_its_own_with_one_winner():
    winner, outcome = search(forests(16), 16)

    assert [trial.number for trial in outcome.trials] == list(range(16))
    brackets = Counter((trial.model, trial.bracket) for trial in outcome.trials)
    assert sorted(brackets.values()) == [4, 4, 8]
    winners = [t for t in outcome.trials if t.state == "complete" and t.same_as is None]
    complete = [(trial.model, trial.bracket) for trial in winners]
    assert sorted(complete) == sorted(brackets)
    assert brackets[winner.model, 1] == 8


@pytest.mark.parametrize("cut", [3, 8, 9, 11, 16])
def test_brackets_are_resumed(cut):
    kept: list[Trial] = []
    _, whole = search(forests(16), 16, on_trial=kept.append)

    done = list({trial.number: trial for trial in kept[:cut]}.values())
    _, resumed = search(forests(16), 16, earlier_trials=done)

    assert gist(resumed.trials) == gist(whole.trials)
    assert resumed.params == whole.params


def test_early_stopping_ends_a_bracket_for_good():
    def after_five(trials):
        return len(trials) == 5

    (forest, _) = forests(12)
    _, outcome = search([forest], 12, should_stop=after_five)

    assert len(outcome.trials) == 5
    assert [trial.state for trial in outcome.trials].count("complete") == 1
