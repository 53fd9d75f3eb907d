"""A table whose matrix is in a file is the table that is read into memory."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from dmls_core.data.table import stored as stored_table
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.stored import store_table
from dmls_core.errors import DataError
from dmls_core.spec import Columns

N = 300
COLUMNS = Columns(target="y")


@pytest.fixture
def frame(monkeypatch) -> pl.DataFrame:
    monkeypatch.setattr(stored_table, "COLUMN_BYTES", 4 * 2 * N)  # two columns at a time
    draw = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "a": draw.normal(size=N).round(3),
            "b": [None if at % 7 == 0 else at / 4 for at in range(N)],
            "region": draw.choice(["north", "south", "west"], N),
            "code": [str(at % 5) for at in range(N)],
            "y": [("yes", "no", None)[at % 3] for at in range(N)],
        }
    )


def write(frame: pl.DataFrame, folder, form: str) -> list:
    if form == "parquet":
        frame.write_parquet(folder / "data.parquet")
        return [folder / "data.parquet"]
    frame[:200].write_csv(folder / "one.csv")
    # The second file has a text for a missing value, and text among the numbers of a category.
    rest = frame[200:].with_columns(b=pl.col("b").cast(pl.String).fill_null("NA"))
    rest.with_columns(code=pl.col("code").replace("4", "four")).write_csv(folder / "two.csv")
    return [folder / "one.csv", folder / "two.csv"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_table_is_that_of_read_table(frame, form, task, tmp_path):
    if task == "regression":
        frame = frame.with_columns(y=pl.when(pl.col("y").is_not_null()).then(pl.col("a") * 2))
    columns = Columns(target="y", categorical=("code",))
    paths = write(frame, tmp_path, form)

    stored = store_table(paths, columns, task, tmp_path / "stored")
    table = read_table(paths, columns, task)

    assert isinstance(stored.matrix, np.memmap)
    assert np.array_equal(stored.matrix, table.matrix, equal_nan=True)
    assert np.array_equal(stored.target, table.target)
    assert np.array_equal(stored.row_mask, table.row_mask)
    for name in ("columns", "labels", "warnings", "heights"):
        assert getattr(stored, name) == getattr(table, name)


def test_bad_value_is_the_same_issue_with_its_line(frame, tmp_path):
    path = tmp_path / "data.csv"
    frame.with_columns(a=pl.when(pl.int_range(N) == 200).then(pl.lit("oops")).otherwise("a")).write_csv(path)

    errors = []
    for read in (
        lambda: read_table([path], COLUMNS, "classification"),
        lambda: store_table([path], COLUMNS, "classification", tmp_path / "stored"),
    ):
        with pytest.raises(DataError) as error:
            read()
        errors.append(str(error.value))

    assert errors[0] == errors[1]
    assert "data.csv:202" in errors[0]


def test_ragged_record_and_a_file_without_rows_are_refused(tmp_path):
    short, empty = tmp_path / "short.csv", tmp_path / "empty.csv"
    short.write_text("a,b,y\n1,2,yes\n1\n3,4,no\n")
    empty.write_text("a,b,y\n")

    for number, (path, message) in enumerate([(short, "short.csv:3"), (empty, "no rows")]):
        with pytest.raises(DataError, match=message):
            store_table([path], COLUMNS, "classification", tmp_path / str(number))
