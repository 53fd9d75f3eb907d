"""CSV files that are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dmls_core.data.formats.csv_source import CsvSource
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.table import TableColumn
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns

NAN = np.nan


def test_numbers_categories_and_labels(read):
    table = read("size,colour,y\n1.5,red,no\n2,blue,yes\n-3e2,red,no\n+.5,blue,yes\n")
    assert table.columns == (TableColumn("size"), TableColumn("colour", ("blue", "red")))
    assert table.matrix.dtype == np.float32
    assert table.matrix.flags.c_contiguous
    np.testing.assert_array_equal(table.matrix, np.float32([[1.5, 1], [2, 0], [-300, 1], [0.5, 0]]))
    assert (table.target.tolist(), table.target.dtype) == ([0, 1, 0, 1], np.int64)
    assert table.labels == ("no", "yes")
    assert table.warnings == ()
    assert table.raw(np.array([2, 1])) == {"size": [-300.0, 2.0], "colour": ["red", "blue"]}


@pytest.mark.parametrize(
    "content",
    [
        "a,b,y\n1,2,x\n3,4,z\n",
        "a,b,y\n1,2,x\n3,4,z",
        "a,b,y\r\n1,2,x\r\n3,4,z\r\n",
        "\ufeffa,b,y\n1,2,x\n3,4,z\n",
        'a,"b",y\n"1","2",x\n3,4,"z"\n',
        " a , b,y\n1, 2,x\n 3 ,4 , z\n",
        "a,b,y\n\n1,2,x\n\n3,4,z\n\n\n",
        "a,b,y,\n1,2,x,\n3,4,z,\n",
        'b,unused,y,a\n2,"Doe, Jane",x,1\n4,"5"" pipe",z,3\n',
    ],
    ids=[
        "plain",
        "no end",
        "crlf",
        "bom",
        "quotes",
        "blanks",
        "empty lines",
        "comma at the end",
        "other columns",
    ],
)
def test_one_table_written_in_many_ways(read, content):
    table = read(content, features=["a", "b"])
    np.testing.assert_array_equal(table.matrix, np.float32([[1, 2], [3, 4]]))
    assert table.labels == ("x", "z")
    assert table.target.tolist() == [0, 1]
    assert table.warnings == ()


@pytest.mark.parametrize(
    "token", ["", "NA", "NaN", "nan", "null", "NULL", "None", "N/A", "#N/A", "<NA>", '""', '"NA"']
)
def test_missing_values(read, token):
    table = read(f"a,b,y\n{token},r,x\n2,{token},z\n3,r,x\n4,r,{token}\n5,r,z\n")
    np.testing.assert_array_equal(table.matrix, np.float32([[NAN, 0], [2, NAN], [3, 0], [5, 0]]))
    assert table.raw(np.array([0, 1])) == {"a": [None, 2.0], "b": ["r", None]}
    text = token.strip('"')
    said = f" (1 say {text!r})" if text else ""
    assert table.warnings == (f"1 of 5 rows have no target and were left out{said}",)


def test_a_late_missing_token_and_a_late_blank_are_no_text(read):
    table = read("a,b,y\n" + "1,2,x\n" * 15_000 + "NA,2,z\n 7 ,2,z\n")
    np.testing.assert_array_equal(table.matrix[-2:], np.float32([[NAN, 2], [7, 2]]))


def test_truth_values_are_numbers(read):
    table = read("a,y\nTrue,x\nfalse,z\n,z\nTRUE,x\n")
    assert table.columns == (TableColumn("a"),)
    np.testing.assert_array_equal(table.matrix, np.float32([[1], [0], [NAN], [1]]))


def test_a_number_can_be_made_a_category(read):
    table = read("a,y\n10,x\n9,z\n9.0,z\n,z\n1e1,x\n", categorical=["a"])
    assert table.columns == (TableColumn("a", ("9", "10", "1e1")),)
    np.testing.assert_array_equal(table.matrix[:, 0], np.float32([1, 0, 0, NAN, 2]))
    numbers = read("a,y\n10,x\n9,z\n9.0,z\n", categorical=["a"])
    assert numbers.columns[0].categories == ("9", "10")


def test_codes_that_look_like_numbers_stay_apart(read):
    assert read("a,y\n01,x\n1,z\n1,x\n", categorical=["a"]).columns[0].categories == ("01", "1")


@pytest.mark.parametrize(
    ("values", "labels", "indices"),
    [
        (["10", "9", "10"], ("9", "10"), [1, 0, 1]),
        (["1.0", "0.0"], ("0.0", "1.0"), [1, 0]),
        (["1.0", "0", "1"], ("0", "1"), [1, 0, 1]),
        (["True", "False"], ("False", "True"), [1, 0]),
        (["no", " yes", "yes "], ("no", "yes"), [0, 1, 1]),
        (["b", "10", "9"], ("10", "9", "b"), [2, 0, 1]),
    ],
)
def test_labels(read, values, labels, indices):
    table = read("a,y\n" + "".join(f"{row},{value}\n" for row, value in enumerate(values)))
    assert table.labels == labels
    assert table.target.tolist() == indices


def test_a_regressors_target_is_not_rounded_to_float32(read):
    table = read("a,y\n1,0.1\n2,NA\n3,16777217\n", task="regression")
    assert table.target.dtype == np.float64
    assert table.target.tolist() == [0.1, 16777217.0]
    assert table.labels is None
    assert table.warnings == ("1 of 3 rows have no target and were left out",)


def test_which_columns_are_features(read):
    content = "k,t,w,a,b,y\n1,2,3,4,5,0\n1,2,3,4,6,1\n"
    assert read(content, id="k", time="t", weight="w", drop=["b"]).feature_names == ("a",)
    assert read(content, features=["b", "a"]).feature_names == ("b", "a")
    assert read(content).feature_names == ("k", "t", "w", "a", "b")


def test_several_files_are_one_below_the_other(tmp_path):
    (tmp_path / "1.csv").write_text("a,b,y\n1,r,0\n2,r,1\n")
    (tmp_path / "2.csv").write_text("y,b,a\n0,s,3\n1,1,NA\n")
    columns = Columns(target="y", categorical=["b"])
    table = read_table([tmp_path / "1.csv", tmp_path / "2.csv"], columns, "classification")
    assert table.columns == (TableColumn("a"), TableColumn("b", ("1", "r", "s")))
    assert table.target.tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(table.matrix, np.float32([[1, 1], [2, 1], [3, 2], [NAN, 0]]))


def test_files_that_disagree_about_a_column(tmp_path):
    (tmp_path / "1.csv").write_text("a,y\n1,0\n" + "2,1\n" * 4)
    (tmp_path / "2.csv").write_text("a,y\n" + "red,0\nblue,1\n" * 4 + "1.0,0\n")
    table = read_table([tmp_path / "1.csv", tmp_path / "2.csv"], Columns(target="y"), "classification")
    assert table.columns[0].categories == ("1", "2", "blue", "red")


def test_column_names_need_not_be_tame(read):
    table = read('"a\nb","c,d","{e}",y\n1,2,3,0\n4,5,6,1\n')
    assert table.feature_names == ("a\nb", "c,d", "{e}")


def test_large_integers_that_stay_apart_are_numbers(read):
    rows = "".join(f"{2_024_000_001 + 1000 * row},{row % 2}\n" for row in range(50))
    assert read("a,y\n" + rows).matrix[0, 0] == np.float32(2_024_000_001)


@pytest.mark.parametrize("bad", [1, 4, 9])
def test_only_columns_with_other_texts_are_read_as_text(tmp_path: Path, bad: int) -> None:
    names = [f"f{at}" for at in range(10)]
    rows = [names, ["1.5"] * 10, ["NA"] * 10, ["n/k"] * bad + ["3.5"] * (10 - bad)]
    (tmp_path / "d.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    source = CsvSource(tmp_path / "d.csv", DataLimits.from_environment())
    frame = source.read(dict.fromkeys(names, pl.Float32()))
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    assert texts == (names[:bad] if bad < 5 else names)
    assert frame.row(2)[:bad] == ("n/k",) * bad
