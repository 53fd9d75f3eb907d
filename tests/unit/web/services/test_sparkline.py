"""Sparklines."""

from __future__ import annotations

from dmls_core.web.services.sparkline import SPARK_HEIGHT, SPARK_WIDTH, sparkline


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
