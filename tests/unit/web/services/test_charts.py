"""Sparklines, and the chart of a search."""

from __future__ import annotations

import pytest

from dmls_core.html.leaderboard import rank_trials
from dmls_core.web.services.charts import SPARK_HEIGHT, SPARK_WIDTH, sparkline, trial_chart


def test_a_sparkline_stays_inside_its_box_and_rises_with_the_score():
    line = sparkline([0.5, 0.9, 0.7])
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in line.points.split()]
    assert all(0 < x < SPARK_WIDTH and 0 < y < SPARK_HEIGHT for x, y in points)
    assert points[1][1] < points[2][1] < points[0][1]
    assert line.last == points[-1]
    assert line.label == "3 runs, from 0.5 to 0.7, between 0.5 and 0.9"


def test_a_sparkline_needs_two_scores_which_may_be_equal():
    assert sparkline([0.5]) is None
    line = sparkline([0.5, 0.5])
    assert line is not None
    assert len({point.split(",")[1] for point in line.points.split()}) == 1


def trial(number: int, value: float | None, state: str = "complete") -> dict[str, object]:
    return {"number": number, "value": value, "state": state}


def test_trials_are_ranked_best_first_and_pruned_and_failed_ones_last():
    trials = [trial(0, 0.5), trial(1, 0.9, "pruned"), trial(2, None, "failed"), trial(3, 0.8)]
    assert [found["number"] for found in rank_trials(trials, "maximize")] == [3, 0, 1, 2]
    assert [found["number"] for found in rank_trials(trials, "minimize")] == [0, 3, 1, 2]


def test_pruned_trials_rank_by_how_far_they_got_and_then_by_the_score_at_that_step():
    trials = [
        trial(0, 0.95, "pruned") | {"steps": 24, "step_score": 0.9},
        trial(1, 0.6, "pruned") | {"steps": 50, "step_score": 0.6},
        trial(2, 0.5, "pruned") | {"steps": 50, "step_score": 0.7},
        trial(3, 0.4),
    ]
    assert [found["number"] for found in rank_trials(trials, "maximize")] == [3, 2, 1, 0]
    # The report has the scores of all steps.
    whole = [
        found | {"step_score": None, "intermediate_values": [0.1, found.get("step_score")]}
        for found in trials
    ]
    assert [found["number"] for found in rank_trials(whole, "maximize")] == [3, 2, 1, 0]


@pytest.mark.parametrize(("direction", "best"), [("maximize", 2), ("minimize", 1)])
def test_the_chart_marks_the_best_finished_trial(direction: str, best: int):
    found = trial_chart([trial(0, 0.5), trial(1, 0.3), trial(2, 0.8), trial(3, 0.9, "pruned")], direction)
    assert found is not None
    assert [label.split(":")[0] for *_, label, kind in found.dots if kind == "best"] == [f"trial {best}"]
    # A pruned trial has no comparable score: it stands below the scores.
    (pruned,) = (dot for dot in found.dots if dot[3] == "pruned")
    assert pruned[1] > max(y for _, y, _, kind in found.dots if kind != "pruned")
    assert pruned[2] == "trial 3: pruned"
    assert f"the best is trial {best}" in found.label


def test_a_chart_needs_two_scores_that_can_be_compared():
    assert trial_chart([trial(0, 0.5), trial(1, None, "failed")], "maximize") is None
    assert trial_chart([trial(0, 0.5), trial(1, 0.4, "pruned"), trial(2, 0.4, "pruned")], "maximize") is None
