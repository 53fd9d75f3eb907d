"""Shards of one dataset whose types disagree."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

from dmls_core.data.snapshot import write_snapshot
from dmls_core.data.table.memory import measure_table
from dmls_core.data.table.reader import check_schema, read_table
from dmls_core.data.table.stored import store_table
from dmls_core.errors import DataError
from dmls_core.models import load_spec

SPEC = load_spec(b'model = "random-forest-classifier"\n[columns]\nfeatures = ["x"]\ntarget = "y"\n')


def shards(folder: Path, first: list[object], second: list[object]) -> list[Path]:
    """Write two files of the same name in two folders, as Hive does."""
    paths = []
    for number, values in enumerate((first, second)):
        path = folder / f"shop={number}" / "part-0.parquet"
        path.parent.mkdir()
        pl.DataFrame({"x": values, "y": ["a", "b"]}).write_parquet(path)
        paths.append(path)
    return paths


READERS = {
    "read": lambda paths, _: read_table(paths, SPEC.columns, SPEC.task),
    "stored": lambda paths, folder: store_table(paths, SPEC.columns, SPEC.task, folder / "stored"),
    "footers": lambda paths, _: check_schema(paths, SPEC.columns),
    "plan": lambda paths, _: measure_table(paths, SPEC),
    "source": lambda paths, folder: write_snapshot(
        [str(path) for path in paths],
        [{}, {}],
        {},
        [],
        str(folder / "rows.parquet"),
        [str(path.relative_to(folder)) for path in paths],
    ),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_numbers_in_one_shard_and_text_in_another_are_an_error_wherever_files_are_read(tmp_path, reader):
    paths = shards(tmp_path, [1, 2], ["1", "2"])
    with pytest.raises(DataError) as error:
        reader(paths, tmp_path)
    (issue,) = error.value.issues
    assert (issue.key, issue.file, issue.found) == ("x", "shop=1/part-0.parquet", "String")
    assert issue.expected == "Int64, as in shop=0/part-0.parquet"


@pytest.mark.parametrize(
    ("first", "second"),
    [([1, 2], [True, False]), ([date(2026, 1, 5)] * 2, [1, 2]), ([date(2026, 1, 5)] * 2, ["a", "b"])],
    ids=["truth", "date", "text"],
)
def test_other_types_that_do_not_go_together(tmp_path, first, second):
    with pytest.raises(DataError, match="the column has another type than in other files"):
        check_schema(shards(tmp_path, first, second), SPEC.columns)


def test_numbers_are_promoted_and_a_shard_without_values_has_any_type(tmp_path):
    table = read_table(shards(tmp_path, [1, 2], [2.5, None]), SPEC.columns, SPEC.task)
    assert table.matrix[:3, 0].tolist() == [1.0, 2.0, 2.5]
    (tmp_path / "empty").mkdir()
    empty = read_table(shards(tmp_path / "empty", [1, 2], [None, None]), SPEC.columns, SPEC.task)
    assert empty.columns[0].categories is None
    (tmp_path / "times").mkdir()
    times = shards(tmp_path / "times", [date(2026, 1, 5)] * 2, [datetime(2026, 1, 5, 12, tzinfo=UTC)] * 2)
    measure_table(times, SPEC)
