"""Search spaces and grids."""

from __future__ import annotations

import pytest

from dmls_core.search import Space
from dmls_core.search.space import grid_points, grid_values
from dmls_core.spec import Choice, Range


@pytest.mark.parametrize(
    ("wanted", "values"),
    [
        (Choice(values=("gini", "entropy")), ("gini", "entropy")),
        (Range(min=1, max=3), (1, 2, 3)),
        (Range(min=0, max=400), (0, 100, 200, 300, 400)),
        (Range(min=10, max=50, step=20), (10, 30, 50)),
        (Range(min=1, max=10_000, log=True), (1, 10, 100, 1000, 10_000)),
        (Range(min=0.0, max=1.0), (0.0, 0.25, 0.5, 0.75, 1.0)),
    ],
)
def test_grid_values(wanted, values):
    found = grid_values(wanted)

    assert found == pytest.approx(values) if not isinstance(wanted, Choice) else found == values
    assert [type(v) for v in found] == [type(v) for v in values]


def test_grid_points_come_once_each_in_an_order_of_the_seed():
    space = Space({"a": Range(min=1, max=4), "b": Choice(values=("x", "y", "z"))}, {})

    points = list(grid_points(space, 0))

    assert len(points) == 12
    assert {(p["a"], p["b"]) for p in points} == {(a, b) for a in range(1, 5) for b in "xyz"}
    assert points == list(grid_points(space, 0))
    assert points != list(grid_points(space, 1))


def test_a_space_tells_fixed_from_searched():
    space = Space.of({"a": Range(min=1, max=4), "b": Choice(values=("x",)), "c": Choice(values=(1, 2))})

    assert set(space.searched) == {"a", "c"}
    assert space.fixed == {"b": "x"}
