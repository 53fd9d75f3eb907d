"""Holdouts by time and group: roles of rows, which rows are held out, and messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dmls_core.data.split.description import describe_split, split_settings
from dmls_core.data.split.holdout import Holdout, hold_out, order_warning
from dmls_core.data.split.row_roles import RowRoles, read_row_roles
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.stored import store_table
from dmls_core.errors import DataError
from dmls_core.models import load_spec
from dmls_core.spec import Spec

ROWS = 120
ORDER = np.random.default_rng(0).permutation(ROWS)
"""Row of the file -> its place in time."""


def spec_of(columns: str, evaluation: str = "", folds: int = 3) -> Spec:
    text = f'model = "random-forest-classifier"\n[columns]\ntarget = "y"\nfeatures = ["a"]\n{columns}\n'
    return load_spec(f"{text}[search]\nfolds = {folds}\n[evaluation]\n{evaluation}\n".encode())


def write(folder: Path, suffix: str = ".csv", **changes: list) -> Path:
    columns = {
        "a": [row // 2 for row in range(ROWS)],
        "when": [f"2026-{1 + place // 28:02d}-{1 + place % 28:02d}" for place in ORDER.tolist()],
        "who": [f"p{row % 30}" for row in range(ROWS)],
        "w": [0.5 + row % 3 for row in range(ROWS)],
        "y": ["yes" if row % 7 < 3 else "no" for row in range(ROWS)],
    } | changes
    path = folder / f"data{suffix}"
    frame = pl.DataFrame(columns, strict=False)
    frame.write_csv(path) if suffix == ".csv" else frame.write_parquet(path)
    return path


def held(path: Path, spec: Spec) -> Holdout:
    table = read_table([path], spec.columns, spec.task)
    return hold_out(table, read_row_roles([path], spec, table.row_mask), spec)


TIME = 'time = "when"'
BY_TIME = 'split = "time"'
GROUP = 'group = "who"'


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_latest_rows_are_held_out(tmp_path, suffix):
    found = held(write(tmp_path, suffix), spec_of(TIME, BY_TIME))

    assert sorted(ORDER[found.test].tolist()) == list(range(96, 120))
    assert sorted([*found.train, *found.test]) == list(range(ROWS))
    assert found.since is not None
    assert found.since.isoformat() == "2026-04-13T00:00:00+00:00"
    assert (np.diff(found.test) < 0).any()  # in random order


def test_rows_of_one_time_are_on_one_side_and_a_large_holdout_is_warned_about(tmp_path):
    months = [f"2026-{1 + place // 40:02d}-01" for place in ORDER.tolist()]
    found = held(write(tmp_path, when=[*months[:-1], "2025-12-31"]), spec_of(TIME, BY_TIME, folds=2))

    assert set(ORDER[found.test]) <= set(range(80, 120))
    assert len(found.test) >= 39
    assert "32% of the rows are held out, not 20%" in found.warning


@pytest.mark.parametrize("evaluation", ["", "group_duplicates = true"])
def test_groups_are_held_out_as_a_whole(tmp_path, evaluation):
    spec = spec_of(GROUP, evaluation)
    found = held(write(tmp_path, a=list(range(ROWS))), spec)

    who = np.arange(ROWS) % 30
    assert not set(who[found.train]) & set(who[found.test])
    assert len(found.test) == 24
    assert spec.evaluation.split == "random"


def test_rows_with_the_same_features_are_on_one_side(tmp_path):
    found = held(write(tmp_path), spec_of("", "group_duplicates = true"))

    assert not set(found.train // 2) & set(found.test // 2)
    assert not found.roles.independent


def test_weights_have_a_mean_of_1_and_change_no_split(tmp_path):
    path = write(tmp_path)
    plain, weighted = held(path, spec_of("")), held(path, spec_of('weight = "w"'))

    assert (plain.test == weighted.test).all()
    assert plain.roles == RowRoles()
    assert weighted.roles.weights is not None
    assert weighted.roles.weights[weighted.train].mean() == pytest.approx(1)
    ratio = weighted.roles.weights / (0.5 + np.arange(ROWS) % 3)
    assert ratio == pytest.approx(ratio[0])


def test_a_table_on_disk_is_split_like_one_in_memory(tmp_path):
    targets = ["yes" if row % 7 < 3 else "no" for row in range(ROWS)]
    path = write(tmp_path, y=[None, *targets[1:]])
    for columns, evaluation in ((TIME, BY_TIME), (GROUP, ""), ("", "group_duplicates = true")):
        spec = spec_of(columns, evaluation)
        stored = store_table([path], spec.columns, spec.task, tmp_path / (columns or "same"))
        own = hold_out(stored, read_row_roles([path], spec, stored.row_mask), spec)
        other = held(path, spec)
        assert (own.train == other.train).all()
        assert (own.test == other.test).all()
        assert len(own.train) + len(own.test) == ROWS - 1


@pytest.mark.parametrize(
    ("file_order", "columns", "evaluation", "warns"),
    [
        ("ascending", "", "", True),
        ("descending", "", "", True),
        ("shuffled", "", "", False),
        ("of one day", "", "", False),
        ("ascending", 'time = "when"', 'split = "time"', False),
    ],
)
def test_rows_in_the_order_of_a_date_are_not_silently_split_at_random(
    tmp_path, file_order, columns, evaluation, warns
):
    dates = [f"2026-{1 + place // 28:02d}-{1 + place % 28:02d}" for place in range(ROWS)]
    times = [f"{place // 60:02d}:{place % 60:02d}" for place in range(ROWS)]
    shuffled = [dates[at] for at in ORDER]
    orders = {"ascending": dates, "descending": dates[::-1], "shuffled": shuffled, "of one day": times}
    path = write(tmp_path, when=orders[file_order])
    text = f'target = "y"\nfeatures = ["a", "when"]\ndates = ["when"]\n{columns}\n[evaluation]\n{evaluation}'
    spec = load_spec(f'model = "random-forest-classifier"\n[columns]\n{text}\n'.encode())
    table = read_table([path], spec.columns, spec.task)

    found = order_warning(table, read_row_roles([path], spec, table.row_mask))

    assert bool(found) is warns
    assert ('time = "when"' in found) is warns


def replaced(values: list, at: int, value: object) -> list:
    return [*values[:at], value, *values[at + 1 :]]


@pytest.mark.parametrize(
    ("columns", "evaluation", "changes", "key", "words"),
    [
        (
            'group = "whom"',
            "",
            {},
            "columns.group",
            ["'whom' is not in the data", "mean 'who'?"],
        ),
        (GROUP, "", {"who": ["p"] * ROWS}, "columns.group", ["a single one of the groups", "at least 4"]),
        (GROUP, "", {"who": ["p", "q", "r"] * 40}, "columns.group", ["too few groups", "3 in 'who'"]),
        (GROUP, "", {"who": replaced(["p", "q"] * 60, 4, None)}, "who", ["no group in 1 rows", ":6"]),
        ('weight = "w"', "", {"w": replaced([1.5] * ROWS, 2, -1.0)}, "w", ["not a weight", "-1", ":4"]),
        ('weight = "w"', "", {"w": replaced(["1"] * ROWS, 3, "NaN")}, "w", ["not a weight", ":5"]),
        ('weight = "w"', "", {"w": replaced(["1"] * ROWS, 3, "heavy")}, "w", ["not a weight", "heavy"]),
        ('weight = "w"', "", {"w": [0.0] * ROWS}, "w", ["only weights of 0"]),
        (TIME, BY_TIME, {"when": replaced(["2026-01-01"] * ROWS, 5, "soon")}, "when", ["not a time", ":7"]),
        (TIME, BY_TIME, {"when": ["2026-01-01"] * ROWS}, "columns.time", ["a single one of the times"]),
        (TIME, BY_TIME, {"when": replaced(["2026-01-01"] * ROWS, 0, None)}, "when", ["no time in 1 rows"]),
    ],
)
def test_there_is_one_clear_message(tmp_path, columns, evaluation, changes, key, words):
    path = write(tmp_path, **changes)

    with pytest.raises(DataError) as caught:
        held(path, spec_of(columns, evaluation))

    (issue,) = caught.value.issues
    assert issue.key == key
    assert all(word in f"{issue}" for word in words), f"{issue}"


def test_a_sample_is_checked_for_what_no_row_could_refute(tmp_path):
    path = write(tmp_path, w=[0.0] * ROWS)
    read_row_roles([path], spec_of('weight = "w"'), sample=True)

    path = write(tmp_path, w=replaced([1.0] * ROWS, 7, -2.0))
    with pytest.raises(DataError, match="not a weight"):
        read_row_roles([path], spec_of('weight = "w"'), sample=True)


def test_units_are_groups_or_blocks_of_time():
    assert RowRoles().units() is None
    groups = np.array([3, 3, 4])
    assert RowRoles(groups=groups).units() is groups
    blocks = RowRoles(times=np.arange(100)).units()
    assert blocks is not None
    assert np.bincount(blocks).tolist() == [10] * 10


def test_a_split_is_described():
    assert describe_split(split_settings(spec_of(""))) == "20%, stratified"
    assert describe_split(split_settings(spec_of('group = "g"\nweight = "w"'))) == (
        "20%, random, groups of g not divided; weighted by w"
    )
    assert describe_split(split_settings(spec_of(TIME, BY_TIME))) == "the latest 20% by when"
