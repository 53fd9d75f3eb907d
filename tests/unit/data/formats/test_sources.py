"""Reading with a device's reader: the same table, whatever the reader leaves out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dmls_core.data.table.reader import read_table
from dmls_core.errors import DataError
from dmls_core.spec import Columns

CSV = "a,b,c,kind\n1.5,2,x,no\n2.5,NA,y,yes\n-3,4,x,no\n0.1,5,,yes\n"
COLUMNS = Columns(target="kind")


class Reader:
    """Hands out what it was given, and notes what it was asked for."""

    def __init__(self, table: pa.Table | None) -> None:
        self.table = table
        self.asked: dict = {}
        self.about: dict = {}

    def csv(self, _path: Path, kinds: dict, **about: int) -> pa.Table | None:
        self.asked, self.about = kinds, about
        return self.table

    def parquet(self, _path: Path, kinds: dict) -> pa.Table | None:
        self.asked = kinds
        return self.table


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(CSV)
    return path


def same(one, other) -> bool:
    return (
        one.columns == other.columns
        and one.labels == other.labels
        and np.array_equal(one.matrix, other.matrix, equal_nan=True)
        and np.array_equal(one.target, other.target)
    )


def test_a_reader_is_asked_for_the_columns_that_are_used(csv: Path):
    reader = Reader(None)

    table = read_table([csv], Columns(target="kind", features=("c", "a")), "classification", reader=reader)

    assert reader.asked == {2: "str", 0: "float32", 3: "str"}
    assert reader.about == {"header_lines": 1, "columns": 4}
    assert table.feature_names == ("c", "a")


def test_what_the_reader_leaves_out_is_read_besides(csv: Path):
    clean = pa.table(
        {"0": pa.array([1.5, 2.5, -3, 0.1], pa.float32()), "2": ["x", "y", "x", None], "3": ["no", "yes"] * 2}
    )

    table = read_table([csv], COLUMNS, "classification", reader=Reader(clean))

    assert same(table, read_table([csv], COLUMNS, "classification"))
    assert np.isnan(table.matrix[1, 1])


def test_what_the_reader_read_is_taken(csv: Path):
    other = pa.table({"0": pa.array([7, 8, 9, 10], pa.float32())})

    table = read_table([csv], COLUMNS, "classification", reader=Reader(other))

    assert table.matrix[:, 0].tolist() == [7, 8, 9, 10]


@pytest.mark.parametrize("rows", [0, 3])
def test_a_reader_that_counts_other_rows_is_not_believed(csv: Path, rows: int):
    short = pa.table({"0": pa.array([7.0] * rows, pa.float32())})

    table = read_table([csv], COLUMNS, "classification", reader=Reader(short))

    assert same(table, read_table([csv], COLUMNS, "classification"))


def test_errors_name_their_lines_all_the_same(csv: Path):
    csv.write_text(CSV.replace("-3,4", "1e999,4"))
    infinite = pa.table({"0": pa.array([1.5, 2.5, np.inf, 0.1], pa.float32())})

    with pytest.raises(DataError) as raised:
        read_table([csv], COLUMNS, "classification", reader=Reader(infinite))

    assert raised.value.issues[0].line == 4


def test_of_parquet_only_plain_columns_are_asked_for(tmp_path: Path):
    path = tmp_path / "data.parquet"
    pl.DataFrame(
        {"a": [1, 2, 3, 4], "b": [True, False, True, False], "c": ["x", "y", "x", "y"], "y": [0.5, 1, 2, 3]}
    ).write_parquet(path)
    reader = Reader(pa.table({"a": pa.array([1, 2, 3, 4], pa.float32())}))

    table = read_table([path], Columns(target="y"), "regression", reader=reader)

    assert reader.asked == {"a": "float32", "c": "str", "y": "float64"}
    assert same(table, read_table([path], Columns(target="y"), "regression"))
