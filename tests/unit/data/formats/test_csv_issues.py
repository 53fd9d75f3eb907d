"""Each way in which a CSV can be wrong has an answer that says where and what to do."""

from __future__ import annotations

import pytest

from dmls_core.data.table.reader import read_table
from dmls_core.errors import DataError, PlatformError
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns

GOOD = "1,2,x\n3,4,z\n"


@pytest.mark.parametrize(
    ("content", "line", "key", "message", "hint"),
    [
        ("", None, "", "the file is empty", ""),
        ("\n\n", None, "", "the file is empty", ""),
        ("a,b,y\n", 1, "", "no rows below the header", ""),
        ("a,b,y", 1, "", "no rows below the header", ""),
        ("a,b,Y\n" + GOOD, 1, "columns.target", "column 'y' is not in the data", "did you mean 'Y'?"),
        ("a,a,y\n" + GOOD, 1, "a", "more than once", "rename"),
        (",b,y\n" + GOOD, 1, "", "column 1 has no name", "index=False"),
        ("y\n1\n2\n", None, "columns", "no column is left", "drop fewer"),
        ("a,b,y\n1,2,x\n3,4\n5,6,z\n", 3, "y", "has 2 fields, the header 3", "keep its comma"),
        ("a,b,y\n1,2\n3,4,z\n", 2, "y", "has 2 fields, the header 3", ""),
        ("a,b,y\n\n\nabc,2,x\n3,4,z\n5,6,z\n", 4, "a", "is not a number", ""),
        ("a,b,y\n1,2,x\n3,4,z,9\n5,6,z\n", 3, "y", "has 4 fields, the header 3", "double quotes"),
        ("a,b,y\n" + GOOD * 9_000 + "1,2\n" + GOOD, 18_002, "y", "has 2 fields", ""),
        ('a,b,y\n1,2,x\n3,"4,z\n5,6,z\n', 3, "b", "never closed", '""'),
        ("a;b;y\n1;2;x\n", 1, "", "separated by semicolons", "commas"),
        ("a\tb\ty\n1\t2\tx\n", 1, "", "separated by tabs", ""),
        ("a,b,y\r1,2,x\r3,4,z\r", 1, "", "carriage return", "Unix"),
        ("a,b,y\n1,2,x\nabc,4,z\n5,6,z\n", 3, "a", "is not a number", "[columns] categorical"),
        ("a,b,y\n" + GOOD * 9_000 + "1,,x\n\nabc,4,z\n" + GOOD, 18_004, "a", "is not a number", ""),
        ('a,b,y\n1,"2",x\n"5\n",4,z\n6,7,z\nq,7,z\n', 6, "a", "is not a number", ""),
        ("a,b,y\n1,,x\n3,,z\n", None, "b", "has no value", "drop"),
        ("a,b,y\n1,2,x\n3,inf,z\n", 3, "b", "infinite", ""),
        ("a,b,y\n1,2,x\n3,1e39,z\n", 3, "b", "beyond the range of a 32-bit", "scale"),
        ("a,b,y\n1,2,x\n3,4,x\n", None, "y", "same class in every row", ""),
        ("a,b,y\n1,2,\n3,4,NA\n", None, "y", "has no value in any row", ""),
        ("a,b,y\n1,2020-01-31,x\n3,2020-02-01,z\n", 2, "b", "contains dates", "[columns] dates"),
        ("a,b,y\n1,31.1.2020 10:20,x\n3,1.2.2020 11:00,z\n", 2, "b", "contains dates", "[columns] dates"),
        (
            "a,b,y\n" + "".join(f"1,name {row},{row % 2}\n" for row in range(11)),
            2,
            "b",
            "too many distinct values",
            "[columns] categorical",
        ),
        (
            "a,b,y\n" + "".join(f"1,€ {row}.50,{row % 2}\n" for row in range(11)),
            2,
            "b",
            "too many distinct values",
            "remove the currency",
        ),
        (
            "a,b,y\n" + "".join(f'1,"[{row}, 2]",{row % 2}\n' for row in range(11)),
            2,
            "b",
            "too many distinct values",
            "JSON lists or objects: write their values into columns of their own",
        ),
        ("a,b,y\n1," + "r" * 5_000 + ",x\n2,s,z\n", 2, "b", "too long", ""),
    ],
)
def test_the_answer(issues, content, line, key, message, hint):
    (issue,) = issues(content)
    assert message in issue.message
    assert (issue.file, issue.line, issue.key) == ("data.csv", line, key)
    assert hint in issue.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "a zip archive or an Excel workbook"),
        (b"\x1f\x8brest", "gzip"),
        (b"PAR1rest", "the file is Parquet"),
        ("a,b,y\n1,2,x\n".encode("utf-16"), "UTF-16"),
        (b"a,b,y\n\0\0\0", "binary"),
        (b"\x89\xfe\x12\x13\xff,\n", "not UTF-8"),
        ("a,b,y\n1,rot,grün\n2,rot,blau\n".encode("latin-1"), "not UTF-8"),
        ("größe,b,y\n1,2,x\n2,3,z\n".encode("latin-1"), "not UTF-8"),
    ],
)
def test_other_formats(issues, content, message):
    assert message in issues(content)[0].message


def test_what_is_wrong_in_several_columns_comes_at_once(issues):
    found = issues("a,b,c,y\n1,x,inf,q\n2,3,4,q\n5,6,7,q\n")
    assert [(issue.key, issue.line) for issue in found] == [("b", 2), ("c", 2), ("y", None)]
    assert [issue.found for issue in found] == ["x", "inf", "q"]


def test_all_missing_columns_come_at_once(issues):
    found = issues("sepal_length,Petal,y\n1,2,3\n", features=["sepal_lenght", "petal"], drop=["zzz"])
    assert [issue.hint for issue in found] == [
        "did you mean 'sepal_length'?",
        "did you mean 'Petal'?",
        "the data has: sepal_length, Petal, y",
    ]


def test_a_sensitive_column_that_is_not_there_is_refused(issues):
    """A name that is mistyped would leave the column in the inference log."""
    (issue,) = issues("a,b,y\n1,2,x\n3,4,z\n", sensitive=["B"])
    assert (issue.key, issue.hint) == ("columns.sensitive", "did you mean 'b'?")


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("a,y\n1,2\n2,x\n", 3, "cannot be the target of a regressor"),
        ("a,y\n1,2\n2,2.0\n", None, "same value in every row"),
        ("a,y\n1,2\n2,-1e300\n", 3, "beyond"),
        ("a,y\n1,True\n2,False\n", 2, "cannot be the target of a regressor"),
        ("a,y\n1,\n2,\n", None, "has no value"),
    ],
)
def test_targets_of_regressors(issues, content, line, message):
    (issue,) = issues(content, "regression")
    assert (message in issue.message, issue.line, issue.key) == (True, line, "y")


def test_ids_that_float32_cannot_tell_apart(issues):
    rows = "".join(f"{20_240_000_000_001 + row},{row % 2}\n" for row in range(100))
    (issue,) = issues("a,y\n" + rows)
    assert (issue.line, issue.key, issue.found) == (2, "a", "20240000000001")
    assert "exclude the column with [columns] drop if it is an id" in issue.hint


@pytest.mark.parametrize(
    "cells",
    [
        [f"word {row}" for row in range(30)],
        [f"[{row}]" for row in range(30)],
        [f"2026-01-{1 + row:02d}" for row in range(30)],
        [str(20_240_000_000_001 + row) for row in range(30)],
        [""] * 30,
    ],
    ids=["text", "lists", "dates", "ids", "empty"],
)
def test_a_hint_says_what_leaves_a_column_out_of_this_spec(issues, cells: list[str]) -> None:
    content = "a,b,y\n" + "".join(f"{row},{cell},{row % 2}\n" for row, cell in enumerate(cells))
    for features, words in (((), "with [columns] drop"), (("a", "b"), "from [columns] features")):
        (issue,) = issues(content, features=features)
        assert issue.key == "b"
        assert words in issue.hint
        assert ("drop" in issue.hint) == (not features)


def test_limits(issues):
    content = "a,b,y\n" + "".join(f"{row},c{row},{row}\n" for row in range(20))
    assert "too many rows" in issues(content, limits=DataLimits(rows=19))[0].message
    assert "too many columns" in issues(content, limits=DataLimits(columns=2))[0].message
    (issue,) = issues(content, limits=DataLimits(categories=19), categorical=["b"])
    assert "too many categories" in issue.message
    (issue,) = issues(content, limits=DataLimits(classes=19), drop=["b"])
    assert "use a regressor" in issue.hint
    wide = "y," + ",".join(f"c{i}" for i in range(9)) + "\n1" + ",inf" * 9 + "\n2" + ",1" * 9 + "\n"
    found = issues(wide, limits=DataLimits(issues=3))
    assert len(found) == 4
    assert found[-1].message == "6 more columns have issues"


def test_the_environment_sets_limits(issues, monkeypatch):
    monkeypatch.setenv("DMLS_DATA_ROWS", "1")
    assert issues("a,y\n1,0\n2,1\n")[0].expected == "at most 1"
    monkeypatch.setenv("DMLS_DATA_ROWS", "-1")
    with pytest.raises(PlatformError, match="DMLS_DATA_ROWS must be a positive integer"):
        issues("a,y\n1,0\n2,1\n")


def test_the_file_that_is_wrong_is_named(tmp_path):
    (tmp_path / "1.csv").write_text("a,y\n1,0\n2,1\n")
    (tmp_path / "2.csv").write_text("a,y\n1,0\nabc,1\n")
    (tmp_path / "3.csv").write_text("b,y\n1,0\n")
    with pytest.raises(DataError) as caught:
        read_table([tmp_path / "1.csv", tmp_path / "2.csv"], Columns(target="y"), "classification")
    (issue,) = caught.value.issues
    assert (issue.file, issue.line, issue.found) == ("2.csv", 3, "abc")
    with pytest.raises(
        DataError, match=r"3\.csv:1: .*column 'a' is not in the data of this file, but in 1\.csv"
    ):
        read_table([tmp_path / "1.csv", tmp_path / "3.csv"], Columns(target="y"), "classification")


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(DataError, match="no data file"):
        read_table([], Columns(target="y"), "classification")
    with pytest.raises(DataError, match="does not exist"):
        read_table([tmp_path / "a.csv"], Columns(target="y"), "classification")
    (tmp_path / "data.dat").write_text("a,y\n1,0\n2,1\n")
    with pytest.raises(DataError, match=r"set \[data\] format"):
        read_table([tmp_path / "data.dat"], Columns(target="y"), "classification")
    table = read_table([tmp_path / "data.dat"], Columns(target="y"), "classification", data_format="csv")
    assert table.n_rows == 2
