"""Allocation of trials to models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmls_core.search.study.allocation import ModelTrials, Turn, expected_trials, next_turn


def more(one: float, other: float) -> bool:
    return one > other


def allocated(models: int, n_trials: int, scores: list[float]) -> list[int]:
    """Allocate trials to models that always score the same; return the number of each."""
    values: list[list[float]] = [[] for _ in range(models)]
    while True:
        entries = [ModelTrials(str(number), tuple(own)) for number, own in enumerate(values)]
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
def test_all_trials_are_allocated_and_better_models_get_more(models, n_trials, shares):
    assert allocated(models, n_trials, [number / 10 for number in range(models)]) == shares
    assert allocated(models, n_trials, [-number / 10 for number in range(models)]) == shares[::-1]


def test_of_equal_models_the_first_one_goes_on():
    assert allocated(2, 8, [0.5, 0.5]) == [6, 2]


def test_a_rung_is_decided_once_all_its_trials_have_ended():
    done, busy = ModelTrials("a", (0.1, 0.2)), ModelTrials("b", (0.9,), running=1)
    assert next_turn([done, busy], 8, more) == "wait"
    assert next_turn([done, replace(busy, values=(0.9, 0.1), running=0)], 8, more) == Turn("b", 6)


def test_the_trials_that_an_exhausted_winner_leaves_go_to_the_others():
    exhausted, open_one = ModelTrials("a", (0.9,), closed=True), ModelTrials("b", (0.1, 0.2))
    assert next_turn([exhausted, open_one], 8, more) == Turn("b", 7)
    assert next_turn([exhausted, replace(open_one, closed=True)], 8, more) == "end"


def test_with_a_timeout_rungs_have_the_trials_that_there_is_time_for():
    assert expected_trials(100, 0, 0.5) == 100
    assert expected_trials(100, 3, 0.0) == 100
    assert expected_trials(100, 3, 0.25) == 12
    assert expected_trials(10, 3, 0.01) == 10
    assert expected_trials(100, 3, 0.99) == 4
    first = ModelTrials("a", (0.1, 0.2, 0.3))
    assert next_turn([first, ModelTrials("b", ())], 100, more) == Turn("a", 25)
    assert next_turn([first, ModelTrials("b", ())], expected_trials(100, 3, 0.25), more) == Turn("b", 3)
