"""Several models: who gets the next trial, and what a whole competition does with them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dmls_core.errors import DataError
from dmls_core.models import CATALOGUE
from dmls_core.search import Space, Trial
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.competition import Entry, Turn, compete, next_turn, pick_winner
from dmls_core.search.cross_validation import CrossValidation
from dmls_core.search.strategies import SearchStrategy
from dmls_core.spec.hyperparameters import Choice, Range
from tests.unit.search.conftest import make_task, refuses


def more(one: float, other: float) -> bool:
    return one > other


def played(models: int, n_trials: int, scores: list[float]) -> list[int]:
    """Play a competition of models that always score the same; return each one's trials."""
    values: list[list[float]] = [[] for _ in range(models)]
    while True:
        entries = [Entry(str(number), tuple(own)) for number, own in enumerate(values)]
        turn = next_turn(entries, n_trials, more)
        if not isinstance(turn, Turn):
            assert turn == "end"
            return [len(own) for own in values]
        assert len(values[int(turn.model)]) < turn.until
        values[int(turn.model)].append(scores[int(turn.model)])


@pytest.mark.parametrize(
    ("models", "n_trials", "shares"),
    [
        (1, 7, [7]),
        (2, 20, [5, 15]),
        (2, 2, [1, 1]),
        (3, 3, [1, 1, 1]),
        (4, 12, [1, 1, 3, 7]),
        (5, 40, [2, 2, 5, 10, 21]),
    ],
)
def test_all_trials_are_shared_out_and_better_models_get_more(models, n_trials, shares):
    assert played(models, n_trials, [number / 10 for number in range(models)]) == shares
    assert played(models, n_trials, [-number / 10 for number in range(models)]) == shares[::-1]


def test_of_equals_the_first_goes_on():
    assert played(2, 8, [0.5, 0.5]) == [6, 2]


def test_a_rung_is_decided_once_all_its_trials_have_ended():
    done, busy = Entry("a", (0.1, 0.2)), Entry("b", (0.9,), running=1)
    assert next_turn([done, busy], 8, more) == "wait"
    assert next_turn([done, replace(busy, values=(0.9, 0.1), running=0)], 8, more) == Turn("b", 6)


def test_what_an_exhausted_winner_leaves_is_the_others():
    exhausted, open_one = Entry("a", (0.9,), closed=True), Entry("b", (0.1, 0.2))
    assert next_turn([exhausted, open_one], 8, more) == Turn("b", 7)
    assert next_turn([exhausted, replace(open_one, closed=True)], 8, more) == "end"


def candidates(*functions, **changes):
    names = ["random-forest-classifier", "extra-trees-classifier", "xgboost-classifier"]
    return [
        ModelCandidate(
            make_task(function, model=CATALOGUE[name], **changes),
            Space({"n_estimators": Range(min=50, max=100_000)}, {}),
            SearchStrategy("tpe"),
            CrossValidation(),
        )
        for name, function in zip(names, functions, strict=False)
    ]


def run(field, n_trials, **more_options):
    kept: list[Trial] = []
    trials = compete(
        field, n_trials, on_trial=kept.append, stop=more_options.pop("stop", lambda: False), **more_options
    )
    return trials, kept


def test_the_better_model_gets_the_rest_and_wins():
    field = candidates(lambda p: p["n_estimators"] / 1e6, lambda p: 1 + p["n_estimators"] / 1e6)

    trials, kept = run(field, 12)

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
    whole, _ = run(candidates(*functions), 12)
    field = candidates(*functions)

    trials, kept = run(field, 12, done=whole[:cut])

    def gist(trial: Trial):
        return trial.number, trial.model, trial.params, trial.value

    assert list(map(gist, trials)) == list(map(gist, whole))
    assert [trial.number for trial in kept] == list(range(cut, 12))


def test_a_repeat_points_to_the_number_among_all():
    field = [
        replace(candidate, space=Space({"criterion": Choice(values=("gini", "entropy"))}, {}))
        for candidate in candidates(lambda _: 0.1, lambda _: 0.2)
    ]

    trials, _ = run(field, 12)

    repeats = [trial for trial in trials if trial.same_as is not None]
    assert repeats
    for trial in repeats:
        first = trials[trial.same_as]
        assert (first.model, first.params) == (trial.model, trial.params)


def test_a_model_that_always_fails_leaves_its_trials_to_the_other():
    field = candidates(refuses("no"), lambda _: 0.5)

    trials, _ = run(field, 8)

    assert Counter(t.model for t in trials if t.state == "complete") == {"extra-trees-classifier": 8}
    assert pick_winner(field, trials)[0] is field[1]


def test_if_all_fail_it_says_why():
    field = candidates(refuses("no"), refuses("never"))
    trials, _ = run(field, 4)
    with pytest.raises(DataError, match="no trial finished: (no|never)"):
        pick_winner(field, trials)


def test_every_model_has_a_trial_when_the_time_is_up_or_enough_is_found():
    for options in ({"timeout": 0.0}, {"enough": lambda _: True}):
        trials, _ = run(candidates(lambda _: 0.1, lambda _: 0.2, lambda _: 0.3), 30, **options)
        assert Counter(trial.model for trial in trials).keys() == {
            "random-forest-classifier",
            "extra-trees-classifier",
            "xgboost-classifier",
        }
        assert len(trials) < 30


def test_it_stops_at_once_when_told_to():
    assert run(candidates(lambda _: 0.1, lambda _: 0.2), 8, stop=lambda: True) == ([], [])
