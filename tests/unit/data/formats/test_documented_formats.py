"""The statements of docs/reference/data-formats.md about files, missing values, features and times."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dmls_core.data.encoder import MISSING
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.time_filter import TimeFilter, rows_within
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns

PAGE = (Path(__file__).parents[4] / "docs/reference/data-formats.md").read_text()
END = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)


def column(tmp_path, text, **columns):
    """Return the feature ``a`` and the labels of a CSV with the columns a and y."""
    path = tmp_path / "data.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    table = read_table([path], Columns(target="y", **columns), "classification")
    return table.matrix[:, 0].tolist(), table.labels


@pytest.mark.parametrize(
    "text",
    [
        "a,y\n1,u\n2,v\n",
        "\ufeffa,y\r\n1,u\r\n2,v\r\n",
        ' a ,y\n"1","u"\n2,v\n',
    ],
)
def test_dialects(tmp_path, text):
    assert column(tmp_path, text) == ([1.0, 2.0], ("u", "v"))


def test_quoted_values(tmp_path):
    assert column(tmp_path, 'y,a\n"u,\n""x""",1\nv,2\n') == ([1.0, 2.0], ('u,\n"x"', "v"))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_are_errors(tmp_path, separator):
    with pytest.raises(DataError, match="not commas"):
        column(tmp_path, f"a{separator}y\n1{separator}u\n")


def test_the_missing_texts_are_those_of_the_page(tmp_path):
    listed = PAGE[PAGE.index("The texts that `pandas.read_csv`") : PAGE.index("- A row without a target")]
    texts = set(re.findall("`([^`]+)`", listed)) - {"pandas.read_csv"}

    assert texts == MISSING - {""}
    for text in texts:
        assert np.isnan(column(tmp_path, f"a,y\n1,u\n{text},v\n")[0][1])


def test_booleans_and_categories(tmp_path):
    assert column(tmp_path, "a,y\nTRUE,u\nfalse,v\n")[0] == [1.0, 0.0]
    assert column(tmp_path, "a,y\n1,u\n1.0,v\n 1,v\n01,v\n", categorical=["a"])[0] == [1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("limit", ["10,000", "1,000", "4,096", "255"])
def test_the_limits_are_those_of_the_page(limit):
    limits = DataLimits()
    values = {limits.categories, limits.classes, limits.cell, limits.found_categories}

    assert int(limit.replace(",", "")) in values
    assert limit in PAGE


def parquet(tmp_path, values, **columns):
    path = tmp_path / "data.parquet"
    pl.DataFrame({"a": values, "y": ["u", "v"]}).write_parquet(path)
    return read_table([path], Columns(target="y", **columns), "classification").matrix[:, 0].tolist()


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([1, 2], [1, 2]),
        ([0.5, 2], [0.5, 2]),
        ([Decimal("0.5"), Decimal(2)], [0.5, 2]),
        ([True, False], [1, 0]),
        (["x", "w"], [1, 0]),
        (pl.Series(["x", "w"], dtype=pl.Categorical), [1, 0]),
        (pl.Series(["x", "w"], dtype=pl.Enum(["x", "w"])), [1, 0]),
    ],
)
def test_parquet_types(tmp_path, values, feature):
    assert parquet(tmp_path, values) == feature


@pytest.mark.parametrize(
    "value",
    [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.time(1)],
)
def test_parquet_times_are_features_only_as_categories(tmp_path, value):
    with pytest.raises(DataError, match="contains dates"):
        parquet(tmp_path, [value, None])
    assert parquet(tmp_path, [value, None], categorical=["a"])[0] == 0


@pytest.mark.parametrize("values", [[[1], [2]], [{"b": 1}, {"b": 2}], [b"x", b"y"], [dt.timedelta(1)] * 2])
def test_nested_and_binary_values_are_errors(tmp_path, values):
    with pytest.raises(DataError, match="nested, binary or duration"):
        parquet(tmp_path, values)


def test_times(tmp_path):
    texts = re.findall(r"`(2026-[^`]+)`", PAGE.partition("\n## Times\n")[2])
    assert len(texts) == 5
    path = tmp_path / "data.csv"
    path.write_text("t\n" + "\n".join(texts) + "\n")

    assert rows_within(path, TimeFilter("t", None, END)).all()
