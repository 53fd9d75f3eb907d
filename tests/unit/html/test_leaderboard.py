"""The order and the history of trials."""

from __future__ import annotations

import pytest

from dmls_core.html.leaderboard import MAX_POINTS, merge_repeats, rank_trials, score_history


def trial(number: int, value: float | None, state: str = "complete") -> dict[str, object]:
    return {"number": number, "value": value, "state": state}


def test_trials_are_ranked_best_first_and_pruned_and_failed_ones_last():
    trials = [trial(0, 0.5), trial(1, 0.9, "pruned"), trial(2, None, "failed"), trial(3, 0.8)]
    assert [each["number"] for each in rank_trials(trials, "maximize")] == [3, 0, 1, 2]
    assert [each["number"] for each in rank_trials(trials, "minimize")] == [0, 3, 1, 2]


def test_pruned_trials_rank_by_how_far_they_got_and_then_by_the_score_at_that_step():
    trials = [
        trial(0, 0.95, "pruned") | {"steps": 24, "step_score": 0.9},
        trial(1, 0.6, "pruned") | {"steps": 50, "step_score": 0.6},
        trial(2, 0.5, "pruned") | {"steps": 50, "step_score": 0.7},
        trial(3, 0.4),
    ]
    assert [each["number"] for each in rank_trials(trials, "maximize")] == [3, 2, 1, 0]
    # The report has the scores of all steps.
    reported = [
        each | {"step_score": None, "intermediate_values": [0.1, each.get("step_score")]} for each in trials
    ]
    assert [each["number"] for each in rank_trials(reported, "maximize")] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("direction", "best"), [("maximize", [0.5, 0.5, 0.8]), ("minimize", [0.5, 0.3, 0.3])]
)
def test_only_complete_trials_are_the_best_so_far(direction: str, best: list[float]):
    trials = [trial(0, 0.5), trial(1, 0.3), trial(2, 0.8), trial(3, 0.9, "pruned"), trial(4, None, "failed")]
    history = score_history(trials, "accuracy", direction)
    assert history is not None
    assert history["best"] == [[number, score] for number, score in enumerate(best)]
    assert [point[0] for point in history["complete"]] == [0, 1, 2]
    assert [point[:2] for point in history["pruned"]] == [(3, 0.9)]


def test_repeats_share_the_row_of_the_first_trial_with_their_configuration():
    trials = [trial(0, 0.5), trial(1, 0.5) | {"same_as": 0}, trial(2, 0.7), trial(3, 0.5) | {"same_as": 0}]
    assert [(each["number"], each["repeats"]) for each in merge_repeats(trials)] == [(0, [1, 3]), (2, [])]
    assert [each["number"] for each in merge_repeats(trials[1:])] == [1, 2, 3], "the first one is not here"


def test_a_history_needs_two_scores():
    assert score_history([trial(0, 0.5), trial(1, None, "failed")], "accuracy", "maximize") is None
    assert (
        score_history([trial(0, 0.4, "pruned"), trial(1, 0.4, "pruned")], "accuracy", "maximize") is not None
    )


def test_a_long_history_is_thinned_out_but_shows_every_improvement():
    trials = [trial(number, 0.9 if number == 4001 else 0.5) for number in range(3 * MAX_POINTS)]
    history = score_history(trials, "accuracy", "maximize")
    assert history is not None
    assert len(history["complete"]) == MAX_POINTS + 1
    assert [4001, 0.9] in history["best"]


def test_the_tooltip_of_a_trial_has_its_hyperparameters():
    trials = [
        trial(number, 0.5) | {"params": {"max_depth": 3, "eta": 0.125, "x": "y" * 90}} for number in (0, 1)
    ]
    history = score_history(trials, "accuracy", "maximize")
    assert history is not None
    assert history["complete"][0][2][:2] == ["max_depth 3", "eta 0.125"]
    assert len(history["complete"][0][2][2]) == 60
