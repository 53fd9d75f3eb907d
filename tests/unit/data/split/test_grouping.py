"""Parts that keep groups whole, and blocks of time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmls_core.data.split import grouping
from dmls_core.data.split.grouping import (
    CACHED_ROWS,
    assign_groups,
    first_of_last,
    hash_rows,
    join_groups,
    time_blocks,
)
from dmls_core.stored_matrix import StoredMatrix


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=4, max_size=30),
    shares=st.sampled_from([(0.8, 0.2), (1 / 3, 1 / 3, 1 / 3), (0.25,) * 4]),
    classes=st.sampled_from([0, 3]),
    seed=st.integers(0, 9),
)
def test_groups_stay_whole_and_every_part_has_one(sizes, shares, classes, seed):
    groups = np.repeat(np.arange(len(sizes)) * 7, sizes)
    target = np.arange(len(groups)) % 3

    parts = assign_groups(groups, target, shares, n_classes=classes, seed=seed)

    assert all(len(set(parts[groups == group])) == 1 for group in groups)
    assert set(parts) == set(range(len(shares)))
    again = assign_groups(groups, target, shares, n_classes=classes, seed=seed)
    assert (parts == again).all()


@pytest.mark.parametrize("balanced", [grouping.BALANCED, 0])
def test_parts_have_their_share_of_the_rows_and_of_each_class(balanced, monkeypatch):
    monkeypatch.setattr(grouping, "BALANCED", balanced)
    generator = np.random.default_rng(0)
    groups = generator.integers(0, 900, 6_000)
    target = (generator.uniform(size=900) < 0.1).astype(int)[groups]  # a class has all rows of its groups

    parts = assign_groups(groups, target, (0.8, 0.2), n_classes=2, seed=1)

    tolerance = 0.005 if balanced else 0.05
    assert (parts == 1).mean() == pytest.approx(0.2, abs=tolerance)
    assert (parts[target == 1] == 1).mean() == pytest.approx(0.2, abs=2 * tolerance)


def test_fewer_groups_than_parts_cannot_be_divided():
    with pytest.raises(ValueError, match="1 groups cannot be divided into 2 parts"):
        assign_groups(np.zeros(5, int), np.zeros(5), (0.8, 0.2), n_classes=0, seed=0)


@settings(max_examples=60, deadline=None)
@given(times=st.lists(st.integers(0, 30), min_size=12, max_size=200), count=st.integers(1, 5))
def test_blocks_follow_each_other_and_split_no_time(times, count):
    times = np.array([*times, *range(count)])

    blocks = time_blocks(times, count)

    assert set(blocks) == set(range(count))
    order = np.argsort(times, kind="stable")
    assert (np.diff(blocks[order]) >= 0).all()
    assert all(len(set(blocks[times == moment])) == 1 for moment in times)


def test_blocks_of_different_times_have_equally_many_rows():
    assert np.bincount(time_blocks(np.random.default_rng(0).permutation(100), 4)).tolist() == [25] * 4


@pytest.mark.parametrize(
    ("times", "first"),
    [(range(10), 8), ([0] * 5 + [1] * 5, 1), ([0] * 9 + [1], 1), ([0] * 7 + [1, 1, 2], 1)],
)
def test_the_last_rows_begin_where_their_share_is_closest(times, first):
    assert first_of_last(np.array(times), 0.2) == first


def test_rows_are_joined_by_groups_and_by_their_values():
    rows = np.array([[1.0, np.nan], [2.0, 0.0], [1.0, np.nan], [3.0, 0.0]], np.float32)
    same = hash_rows(rows)
    assert same[0] == same[2]
    assert len(set(same.tolist())) == 3

    joined = join_groups(np.array([0, 1, 2, 2]), same)

    assert joined[0] == joined[2] == joined[3]  # the first and third are equal, the third and last a group
    assert joined[1] != joined[0]


def test_rows_have_one_hash_in_memory_and_in_a_file(tmp_path):
    rows = np.random.default_rng(0).normal(size=(2 * CACHED_ROWS + 5, 3)).astype(np.float32)
    rows[-1] = rows[0]
    file = np.memmap(tmp_path / "matrix", np.float32, "w+", shape=rows.shape, order="F")
    file[:] = rows
    found = hash_rows(rows)
    assert np.array_equal(hash_rows(StoredMatrix(file, np.arange(len(rows)))), found)
    assert found[-1] == found[0]
    assert len(np.unique(found)) == len(rows) - 1
