from __future__ import annotations

import csv
import gzip
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.data.formats.csv_dialect import CsvRow, decode_head, read_rows
from dmls_core.data.formats.detection import detect
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake import csv_check
from dmls_core.intake.csv_check import check_csv_head
from dmls_core.intake.schema_inference import read_sample

CSV = b"sepal_length,petal_width,species\n5.1,0.2,setosa\n7.0,1.4,versicolor\n"


def spec(task: str = "classification", **columns: Any) -> Any:
    defaults: dict[str, Any] = {
        "features": ("sepal_length", "petal_width"),
        "target": "species",
        "categorical": (),
        "dates": (),
        "date_order": "year-first",
        "drop": (),
        "sensitive": (),
        "id": None,
        "time": None,
        "group": None,
        "weight": None,
    }
    data = SimpleNamespace(not_missing=("None",))
    return SimpleNamespace(task=task, columns=SimpleNamespace(**defaults | columns), data=data)


def check(
    content: bytes, *, complete: bool = True, task: str = "classification", **columns: Any
) -> list[ValidationIssue]:
    return check_csv_head("iris.csv", content, spec(task, **columns), complete=complete, max_columns=100)


def only(content: bytes, **options: Any) -> ValidationIssue:
    (issue,) = check(content, **options)
    assert issue.file == "iris.csv"
    assert issue.message
    return issue


def test_a_cell_may_be_as_long_as_a_record() -> None:
    csv.field_size_limit(131_072)  # Python's own limit
    text = "a" * 200_000
    content = f'sepal_length,petal_width,species,note\n5.1,0.2,setosa,{text}\n7,1.4,virginica,"b\n{text}"\n'
    assert check(content.encode()) == []
    sample = read_sample("iris.csv", content.encode(), complete=True)
    assert sample.columns[3] == (text, f"b\n{text}")
    csv.field_size_limit(131_072)
    assert detect("iris.csv", content.replace(",", ";").encode()) == {"delimiter": ";"}


@pytest.mark.parametrize(
    "content",
    [
        CSV,
        CSV.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + CSV,
        CSV.rstrip(b"\n"),
        CSV + b"\n\n",
        b"\n" + CSV,
        CSV + b'"4,5",,"a ""quoted""\nlabel"\n',
        CSV.replace(b"setosa", "ß漢字".encode()),
        b"extra,sepal_length,petal_width,species\n1,2,3,a\n1,2,3,b\n",
    ],
)
def test_what_is_in_order(content: bytes) -> None:
    assert check(content) == []


@pytest.mark.parametrize("content", [b"", b"  \n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_empty(content: bytes) -> None:
    assert "is empty" in only(content).message


def test_header_only() -> None:
    assert "header and no rows" in only(CSV.split(b"\n")[0]).message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (random.Random(0).randbytes(5000), "binary"),
        (b"a,b\0c\n", "a NUL at byte 3"),
        (b"\x01\x02\x03" * 50, "binary"),
        (gzip.compress(CSV, mtime=0), "gzip"),
        (b"PK\x03\x04...", "Excel"),
        (b"PAR1....", "Parquet"),
        (CSV.decode().encode("utf-16"), "UTF-16"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary"),
    ],
)
def test_binary(content: bytes, words: str) -> None:
    issue = only(content)
    assert words in issue.message
    assert issue.hint


def test_not_utf8() -> None:
    content = CSV + "5,1,müller\n".encode("latin-1")
    issue = only(content)
    position = content.index(b"\xfc")
    assert issue.message == f"the file is not UTF-8: byte {position} is 0xFC"
    assert issue.line == 4
    assert "5,1,müller" in issue.hint


def test_a_character_cut_off_by_the_end_of_the_head_is_no_error() -> None:
    content = CSV + "5,1,é".encode()
    assert check(content[:-1], complete=False) == []
    assert "not UTF-8" in only(content[:-1], complete=True).message


def test_old_mac_line_ends() -> None:
    assert "carriage return" in only(CSV.replace(b"\n", b"\r")).message


@pytest.mark.parametrize(("delimiter", "word"), [(b";", "semicolons"), (b"\t", "tabs"), (b"|", "bars")])
def test_another_delimiter(delimiter: bytes, word: str) -> None:
    issue = only(CSV.replace(b",", delimiter))
    assert word in issue.message
    assert issue.line == 1


def test_missing_columns_with_a_guess() -> None:
    issues = check(
        b"sepal_lenght, petal_width,Species\n1,2,a\n", id="row", features=("sepal_length", "petal_width")
    )
    assert [(p.key, p.expected, p.hint) for p in issues] == [
        ("columns.features", "sepal_length", "did you mean 'sepal_lenght'?"),
        ("columns.target", "species", "did you mean 'Species'?"),
        ("columns.id", "row", "correct the name in the spec, or add the column to the file"),
    ]
    assert {p.found for p in issues} == {"sepal_lenght, petal_width, Species"}


def test_many_missing_columns_are_compared_with_a_bounded_number_of_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []
    monkeypatch.setattr(
        csv_check.difflib, "get_close_matches", lambda _word, names, **_: compared.extend(names) or []
    )
    wanted = spec(features=tuple(f"missing {n}" for n in range(900)))
    issues = csv_check.check_columns("iris.csv", CsvRow(1, [f"c{n}" for n in range(1_000)]), wanted)
    assert len(issues) == 901
    assert 1_000 <= len(compared) <= csv_check._COMPARISONS


def test_all_other_columns_as_features() -> None:
    assert check(CSV, features=()) == []
    assert only(CSV, features=(), target="kind").expected == "kind"


def test_no_header() -> None:
    assert "first line contains numbers" in only(b"1,2,3\n4,5,6\n").message


def test_double_and_empty_names() -> None:
    issues = check(b",sepal_length,petal_width,species,species,\n0,1,2,a,a,\n")
    assert [p.message for p in issues] == [
        "column 1 has no name",
        "column 6 has no name",
        "2 columns are named 'species'",
    ]
    assert (issues[2].found, issues[2].key) == ("4, 5", "species")


def test_too_many_columns() -> None:
    header = ",".join(f"c{n}" for n in range(101)).encode()
    assert only(header + b"\n" + header).found == "101"


def test_ragged_rows_with_their_lines() -> None:
    content = CSV + b'"two\nlines",1,a\n1,2\n\n1,2,a,4\n'
    issues = check(content)
    third = CSV.split(b"\n")[0].decode().split(",")[2]
    assert [(p.line, p.key, p.found, p.expected) for p in issues] == [
        (6, third, "2 cells", "3 cells"),
        (8, third, "4 cells", "3 cells"),
    ]
    assert "too few" in issues[0].message
    assert "too many" in issues[1].message


def test_many_ragged_rows_are_summed_up() -> None:
    issues = check(CSV + b"1\n" * 50)
    assert len(issues) == 11
    assert "40 more rows" in issues[-1].message


def test_a_row_cut_off_by_the_end_of_the_head_is_no_error() -> None:
    assert check(CSV + b"1,2", complete=False) == []
    assert check(CSV + b'1,2,"a\nb', complete=False) == []
    assert only(CSV + b"1,2", complete=True).line == 4


def test_a_quote_that_is_not_closed() -> None:
    issue = only(CSV + b'1,2,"a\n1,2,b\n')
    assert issue.line == 4
    assert "quotation mark" in issue.hint


def test_a_quote_may_be_closed_behind_the_beginning_of_a_file() -> None:
    content = CSV + b'1,2,"a\n' + b"1,2,b\n" * 100_000
    assert check(content, complete=False) == []
    assert only(content).line == 4


def test_a_header_without_end() -> None:
    assert "header is longer" in only(b"a," * 1000, complete=False).message


@pytest.mark.parametrize("cells", [b"a", b"a\n1,1,a", b"a\n1,1,\n1,1,NA"])
def test_one_class(cells: bytes) -> None:
    issue = only(b"sepal_length,petal_width,species\n1,2," + cells + b"\n")
    assert "one class" in issue.message
    assert (issue.key, issue.found) == ("columns.target", "a")


@pytest.mark.parametrize("other", [b"None", b"none", b"Null", b"?"])
def test_a_class_that_only_resembles_a_missing_value_is_one(other: bytes) -> None:
    assert check(b"sepal_length,petal_width,species\n1,2,a\n1,2," + other + b"\n") == []


def test_one_class_so_far_is_no_error() -> None:
    assert check(b"sepal_length,petal_width,species\n1,2,a\n1,2,a\n", complete=False) == []


def test_an_empty_target() -> None:
    assert "empty in every row" in only(b"sepal_length,petal_width,species\n1,2,\n1,2,\n").message


def test_a_regressor_needs_numbers() -> None:
    assert "contains no numbers" in only(CSV, task="regression").message
    assert check(b"sepal_length,petal_width,species\n1,2,3.5\n1,2,NA\n", task="regression") == []


def test_a_sensitive_column_that_is_not_there() -> None:
    issue = only(CSV, sensitive=("Petal_Width",))
    assert (issue.key, issue.hint) == ("columns.sensitive", "did you mean 'petal_width'?")


@given(st.binary(max_size=400) | st.text(alphabet='a,b"\n\r;1', max_size=200).map(str.encode), st.booleans())
def test_whatever_is_dropped_gets_an_answer(content: bytes, complete: bool) -> None:
    for issue in check(content, complete=complete):
        assert issue.message
        assert issue.line is None or issue.line >= 1


@pytest.mark.parametrize(
    ("content", "line", "key"),
    [
        (b"a,b,c\n1,2,3\n1,\x00,3\n", 3, "b"),
        ("a,b,c\n1,2,3\n1,2,\u00fc\n".encode("cp1252"), 3, "c"),
        (b'a,b,c\n1,2,3\n1,"2" x,3\n', 3, "b"),
        (b"\na,\x00\n", 2, ""),
        (b"\na,\xff\n", 2, ""),
        (b'\na,"b" x\n', 2, ""),
    ],
    ids=[
        "NUL",
        "encoding",
        "quote",
        *(f"{what} below an empty line" for what in ("NUL", "encoding", "quote")),
    ],
)
def test_the_cell_that_cannot_be_read_is_named(content: bytes, line: int, key: str) -> None:
    (issue,) = unreadable(content)
    assert (issue.line, issue.key) == (line, key)


def unreadable(content: bytes) -> list[ValidationIssue]:
    with pytest.raises(DataError) as raised:
        list(read_rows("d.csv", decode_head("d.csv", content, complete=True), complete=True))
    return list(raised.value.issues)
