"""Search spaces, folds and outcomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.data.split.row_roles import RowRoles
from dmls_core.errors import DataError
from dmls_core.search.task import Space, enough_folds, grid_points, grid_values, make_folds
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


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    folds=st.integers(2, 8),
    seed=st.integers(0, 99),
)
def test_folds_of_classes(counts, folds, seed):
    target = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    several = [count for count in counts if count > 1]
    if not several:
        with pytest.raises(DataError, match="too few rows"):
            make_folds(target, folds, n_classes=len(counts), seed=seed)
        return

    made = make_folds(target, folds, n_classes=len(counts), seed=seed)

    assert len(made) == max(2, min(folds, *several)) if several else 0
    tested = np.concatenate([fold.test for fold in made])
    assert len(tested) == len(set(tested)) == sum(several)
    for fold in made:
        assert not set(fold.train) & set(fold.test)
        assert len(fold.train) + len(fold.test) == len(target)
        assert set(target[fold.train]) == set(target)
        for code, count in enumerate(counts):
            share = (target[fold.test] == code).sum()
            assert abs(share - (count / len(made) if count > 1 else 0)) < 1


@given(rows=st.integers(2, 200), folds=st.integers(2, 10), seed=st.integers(0, 9))
def test_folds_of_numbers(rows, folds, seed):
    made = make_folds(np.linspace(0, 1, rows), folds, n_classes=0, seed=seed)

    assert len(made) == max(2, min(folds, rows // 2))
    assert sorted(np.concatenate([fold.test for fold in made])) == list(range(rows))
    assert max(len(f.test) for f in made) - min(len(f.test) for f in made) <= 1


@pytest.mark.parametrize(
    ("rows", "folds", "scored"),
    [
        ([3_000], 3, 3),
        ([6_000], 3, 2),
        ([9_999], 3, 1),
        ([9_999], 5, 2),
        ([50_000, 1_000], 3, 1),
        ([50_000, 150], 3, 2),
        ([50_000, 40], 3, 3),
    ],
)
def test_many_rows_need_fewer_folds_unless_a_class_is_rare(rows, folds, scored):
    assert enough_folds(rows, folds) == scored
    target = np.repeat(np.arange(len(rows)), rows)
    made = make_folds(target, folds, n_classes=len(rows) if len(rows) > 1 else 0, seed=0)

    assert len(made) == scored
    assert all(len(fold.train) > len(target) * (1 - 1 / folds) - len(rows) for fold in made)
    assert (
        len(make_folds(target, folds, n_classes=0, seed=0, roles=RowRoles(times=np.arange(len(target)))))
        == folds
    )


def test_folds_depend_on_the_seed_alone():
    target = np.repeat([0, 1], 50)
    one, same, other = (make_folds(target, 3, n_classes=2, seed=seed)[0].test for seed in (1, 1, 2))

    assert (one == same).all()
    assert set(one) != set(other)


def test_folds_of_time_train_on_earlier_rows_and_begin_with_the_latest():
    times = np.random.default_rng(0).permutation(80)
    made = make_folds(times % 2, 3, n_classes=2, seed=0, roles=RowRoles(times=times))

    assert [sorted(times[fold.test]) for fold in made] == [
        list(range(start, start + 20)) for start in (60, 40, 20)
    ]
    assert all(times[fold.train].max() == times[fold.test].min() - 1 for fold in made)
    (only,) = make_folds(times % 2, 3, n_classes=2, seed=0, most=1, roles=RowRoles(times=times))
    assert (only.test == made[0].test).all()


def test_folds_of_groups_share_none():
    groups = np.random.default_rng(0).integers(0, 20, 300)
    made = make_folds(np.zeros(300), 4, n_classes=0, seed=0, roles=RowRoles(groups=groups))

    assert len(made) == 4
    assert all(not set(groups[fold.train]) & set(groups[fold.test]) for fold in made)
    assert sorted(np.concatenate([fold.test for fold in made])) == list(range(300))
    assert max(len(fold.test) for fold in made) < 90


def test_a_space_contains_the_points_of_its_ranges_and_choices():
    space = Space(
        {"a": Range(min=1, max=9, step=2), "b": Range(min=0.1, max=1.0), "c": Choice(values=("x", 2))}, {}
    )
    assert space.contains({"a": 3, "b": 0.1, "c": "x", "d": 1})
    for change in ({"a": 4}, {"a": 11}, {"b": 0.01}, {"b": "none"}, {"c": "y"}):
        assert not space.contains({"a": 3, "b": 0.1, "c": "x", **change})
    assert not space.contains({"a": 3, "b": 0.1})
