"""Parquet: the file's own types decide."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import date
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from dmls_core.data.formats.conversion import convert
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.table import TableColumn
from dmls_core.errors import DataError
from dmls_core.intake.schema_inference import infer_schema, sample_file
from dmls_core.spec import Columns
from dmls_core.spec.data_table import Data

NAN = np.nan


def _read(tmp_path, columns: dict, task="classification", **roles):
    path = tmp_path / "data.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return read_table([path], Columns(**{"target": "y"} | roles), task)


def test_types(tmp_path):
    table = _read(
        tmp_path,
        {
            "i": [1, None, 3, 4],
            "f": [0.5, float("nan"), None, -1.0],
            "d": [Decimal("1.5"), None, Decimal(2), Decimal(3)],
            "b": [True, None, False, True],
            "s": ["red", None, "blue", "red"],
            "c": pl.Series(["u", "v", "u", None], dtype=pl.Categorical),
            "y": [1, 0, None, 1],
        },
    )
    assert table.columns == (
        *(TableColumn(name) for name in "ifdb"),
        TableColumn("s", ("blue", "red")),
        TableColumn("c", ("u", "v")),
    )
    np.testing.assert_array_equal(
        table.matrix,
        np.float32([[1, 0.5, 1.5, 1, 1, 0], [NAN, NAN, NAN, NAN, NAN, 1], [4, -1, 3, 1, 1, NAN]]),
    )
    assert table.labels == ("0", "1")
    assert table.target.tolist() == [1, 0, 1]
    assert table.warnings == ("1 of 4 rows have no target and were left out",)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([True, False], ("False", "True")),
        ([1.0, 0.0], ("0.0", "1.0")),
        ([10, 9], ("9", "10")),
        (["b", "a"], ("a", "b")),
    ],
)
def test_labels(tmp_path, values, labels):
    assert _read(tmp_path, {"a": [1, 2], "y": values}).labels == labels


def test_categories_compare_as_in_a_csv(tmp_path, read):
    parquet = _read(tmp_path, {"a": [1.0, 2.5, 1.0], "y": ["u", "v", "v"]}, categorical=["a"])
    text = read("a,y\n1,u\n2.50,v\n1.0,v\n", categorical=["a"])
    assert parquet.columns == text.columns == (TableColumn("a", ("1", "2.5")),)
    np.testing.assert_array_equal(parquet.matrix, text.matrix)


@pytest.mark.parametrize(
    ("column", "message", "found"),
    [
        ([date(2020, 1, 1), None], "contains dates", ""),
        ([[1], [2]], "nested, binary or duration", ""),
        ([b"x", b"y"], "nested, binary or duration", ""),
        ([1.0, float("inf")], r"infinite.*\(row 2\)", "inf"),
        ([None, None], "no value in any row", ""),
        ([2**60, 2**60 + 1], r"too large to be distinct.*\(row 1\)", str(2**60)),
    ],
)
def test_columns_that_are_no_features(tmp_path, column, message, found):
    with pytest.raises(DataError, match=message) as caught:
        _read(tmp_path, {"a": column, "y": [0, 1]})
    (issue,) = caught.value.issues
    assert (issue.file, issue.line, issue.key) == ("data.parquet", None, "a")
    assert found in issue.found


def test_what_parquet_calls_a_category_is_one(tmp_path):
    texts = [f"name {row}" for row in range(20)]
    columns = {"a": pl.Series(texts, dtype=pl.Enum(texts)), "y": [0, 1] * 10}
    assert len(_read(tmp_path, columns).columns[0].categories) == 20
    with pytest.raises(DataError, match="too many distinct values"):
        _read(tmp_path, columns | {"a": texts})


def test_dates_can_be_categories(tmp_path):
    table = _read(tmp_path, {"a": [date(2020, 1, 1), date(2019, 1, 1)], "y": [0, 1]}, categorical=["a"])
    assert table.columns[0].categories == ("2019-01-01", "2020-01-01")


def test_targets_of_regressors(tmp_path):
    assert _read(tmp_path, {"a": [1, 2], "y": [0.1, 2**53]}, "regression").target.tolist() == [0.1, 2.0**53]
    with pytest.raises(DataError, match="cannot be the target of a regressor"):
        _read(tmp_path, {"a": [1, 2], "y": [True, False]}, "regression")


def test_what_is_no_parquet(tmp_path):
    path = tmp_path / "data.parquet"
    for content in (b"", b"PAR1", b"a,y\n1,0\n", b"PAR1" + bytes(100) + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot be read as Parquet"):
            read_table([path], Columns(target="y"), "classification")
    pl.DataFrame({"a": [1, 2], "y": [0, 1]}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_table([path], Columns(target="y"), "classification")


def test_no_rows_and_missing_columns(tmp_path):
    with pytest.raises(DataError, match="the file has no rows"):
        _read(tmp_path, {"a": pl.Series([], dtype=pl.Int64), "y": pl.Series([], dtype=pl.Int64)})
    with pytest.raises(DataError, match=r"did you mean 'Y'\?") as caught:
        _read(tmp_path, {"a": [1, 2], "Y": [0, 1]})
    assert caught.value.issues[0].line is None


def test_a_panic_of_polars_is_an_error_of_the_file(tmp_path, monkeypatch):
    def panic(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(pl.LazyFrame, "collect", panic)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        _read(tmp_path, {"a": [1, 2, 3], "y": [0, 1, 0]})


def test_damaged_files_raise_nothing_but_data_errors(tmp_path):
    path = tmp_path / "data.parquet"
    pl.DataFrame({"a": range(60), "s": ["x", "yy", "z"] * 20, "y": [0, 1] * 30}).write_parquet(path)
    content, chance, readable = path.read_bytes(), random.Random(16), 0
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(4, len(damaged) - 8)] = chance.randrange(256)
        path.write_bytes(damaged)
        with suppress(DataError):
            read_table([path], Columns(target="y"), "classification")
            readable += 1
    # Some damage is in values only, and some makes the file unreadable.
    assert 0 < readable < 60


def test_texts_are_numbers_in_the_notation_of_the_spec(tmp_path):
    path = tmp_path / "a.parquet"
    prices = ["45,06 €", "1.234,5 €", None, "-"] * 10
    pl.DataFrame(
        {"price": prices, "size": [1.5, 2.5, None, 4.0] * 10, "y": [1.0, 2.0, 3.0, 4.0] * 10}
    ).write_parquet(path)
    spec = infer_schema(path.name, sample_file(path), "y").document["data"]
    assert spec == {"decimal": ",", "thousands": ".", "missing": ["-"], "numbers": {"price": {"unit": "€"}}}
    plain = convert(path, Data.model_validate(spec), tmp_path / "plain")
    table = read_table([plain], Columns(target="y"), "regression")
    expected = np.float32([[45.06, 1.5], [1234.5, 2.5], [NAN] * 2, [NAN, 4]])
    np.testing.assert_array_equal(table.matrix[:4], expected)
    pl.DataFrame({"price": ["1,5", "45.06"], "y": [1, 2]}).write_parquet(path)
    with pytest.raises(DataError, match=r"a.parquet: price: is a number in another notation.*\(row 2\)"):
        convert(path, Data.model_validate(spec), tmp_path / "wrong")
