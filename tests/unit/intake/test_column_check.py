"""What is called valid trains: admission checks columns as the trainer does."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from dmls_core.data.formats.thinning import CHUNK
from dmls_core.errors import ValidationIssue
from dmls_core.intake.column_check import CELLS, Findings, check_columns, is_whole
from dmls_core.models import load_spec
from dmls_core.settings import IntakeLimits
from dmls_core.store import open_store

SPEC = """
model = "random-forest-classifier"
n_trials = 2
[columns]
target = "y"
[n_estimators]
value = 10
"""
GOOD = "1,red,2,u\n2,blue,3,v\n"


def check(
    folder: Path, content: str | pl.DataFrame, spec: str = SPEC, whole_bytes: int = 1 << 20
) -> list[ValidationIssue]:
    store = open_store(str(folder))
    if isinstance(content, str):
        name, data_format = "data.csv", "csv"
        store.put(name, f"a,b,c,y\n{content}".encode())
    else:
        name, data_format = "data.parquet", "parquet"
        content.write_parquet(folder / name)
    info = store.head(name)
    assert info
    limits = IntakeLimits(whole_bytes=whole_bytes, head_bytes=4096)
    assert is_whole([info], load_spec(spec.encode()), limits) == (info.size <= whole_bytes)
    return list(check_columns(store, [info], data_format, load_spec(spec.encode()), limits).issues)


def test_a_table_that_trains(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD * 5) == []


def test_a_check_imports_no_learning_library(tmp_path: Path) -> None:
    """Each submission is checked in a new process: such an import costs more than all the rest."""
    file = tmp_path / "data.csv"
    file.write_text(f"a,b,c,y\n{GOOD * 5}")
    code = "import json, sys; from dmls_core.intake.column_check import examine; "
    code += "result = examine([sys.argv[1]], json.loads(sys.argv[2]), 'all'); "
    code += (
        "print(json.dumps([result['issues'], [*{'scipy', 'sklearn', 'pandas', 'pyarrow'} & {*sys.modules}]]))"
    )
    document = json.dumps(load_spec(SPEC.encode()).as_json())
    done = subprocess.run([sys.executable, "-c", code, file, document], capture_output=True, check=True)
    assert json.loads(done.stdout) == [[], []]


@pytest.mark.parametrize(
    ("content", "line", "key", "message"),
    [
        (GOOD * 2_000 + "x,red,2,u\n" + GOOD, 4002, "a", "is not a number"),
        (GOOD * 5 + "1,red,inf,u\n", 12, "c", "infinite"),
        (GOOD.replace("red", "2026-01-05").replace("blue", "2026-01-06") * 5, 2, "b", "dates"),
        (GOOD * 5 + "1,red,2,w\n", 12, "y", "class 'w' has too few rows"),
    ],
    ids=["text", "infinite", "dates", "class"],
)
def test_the_cell_that_fails_training_is_named(
    tmp_path: Path, content: str, line: int, key: str, message: str
) -> None:
    (issue,) = check(tmp_path, content)
    assert (issue.line, issue.key) == (line, key)
    assert message in issue.message


def test_the_hint_on_numbers_of_columns_is_all_that_they_need(tmp_path: Path) -> None:
    rows = "".join(f'{n}0.5%,"1.{n}0,50","$1,{n}0.{n}",{"uv"[n % 2]}\n' for n in range(10, 90))
    (issue,) = check(tmp_path, rows)
    keys = issue.hint.removeprefix("add to [data] in the spec: ")
    spec = f"{SPEC}[data]\n" + re.sub(", (?=numbers)", "\n", keys)
    assert load_spec(spec.encode()).data.reading == {
        "thousands": ",",
        "numbers": {"a": {"unit": "%"}, "b": {"decimal": ",", "thousands": "."}, "c": {"unit": "$"}},
    }
    assert check(tmp_path, rows, spec) == []
    # Another mark in the spec than most columns have.
    (issue,) = check(tmp_path, rows, f"{SPEC}[data]\ndecimal = ','\nthousands = '.'\n")
    assert 'numbers."a" = { decimal = ".", thousands = ",", unit = "%" }' in issue.hint
    (missing,) = check(tmp_path, rows, f'{spec}\nnumbers.d.unit = "%"\n')
    assert (missing.key, missing.expected) == ("data.numbers", "d")


EXPECTED = (
    SPEC
    + """
[expectations]
min_rows = 12
[expectations.columns.a]
max = 1
[expectations.columns.b]
values = ["red", "blue"]
"""
)


def test_what_validation_would_fail_the_run_for(tmp_path: Path) -> None:
    """With the words of the run, also for what every spec implies."""
    above, rows = check(tmp_path, GOOD * 5, EXPECTED)[::-1]
    assert rows.message == "the data: there are at least 12 rows, but: there are 10"
    assert (above.key, above.expected) == ("a", "every value is at most 1")
    assert above.found == "5 of 10 values do not meet it, such as 2"
    empty = "1,red,,u\n2,blue,,v\n" * 48 + GOOD * 2
    (issue,) = check(tmp_path, empty)
    assert (issue.key, issue.found) == ("c", "96 of 100 are missing")
    assert issue.expected == "at most 95 % of the values are missing"


def test_of_a_sample_no_count_is_expected(tmp_path: Path) -> None:
    (issue,) = check(tmp_path, GOOD * 5 + ",green,,\n", EXPECTED.replace("max = 1", "max = 2"), 64)
    assert (issue.key, issue.found) == ("b", "1 of 11 values do not meet it, such as green")


def test_runs_that_choose_their_rows_check_them(tmp_path: Path) -> None:
    chosen = EXPECTED.replace('"y"', '"y"\ntime = "c"') + "[schedule]\ncron = '@weekly'\n"
    lines = "1,red,2026-01-05,u\n2,blue,2026-01-06,v\n" * 5
    assert check(tmp_path, lines, chosen, 1) == []


def test_a_row_that_no_run_has_read_yet_is_refused_with_that_hint(tmp_path: Path) -> None:
    rows = "".join(f"{n},red,2026-01-{n},{'uv'[n % 2]}\n" for n in range(10, 30)) + "x,red,2026-01-31,u\n"
    store = open_store(str(tmp_path))
    store.put("data.csv", f"a,b,c,y\n{rows}".encode())
    info = store.head("data.csv")
    assert info
    for schedule in ("", "[schedule]\ncron = '@weekly'\n"):
        spec = load_spec((SPEC.replace('"y"', '"y"\ntime = "c"') + schedule).encode())
        (issue,) = check_columns(store, [info], "csv", spec, IntakeLimits()).issues
        assert (issue.line, issue.key) == (22, "a")
        expected = "all rows are checked, also those of the current interval, which no run has read yet"
        assert (expected in issue.hint) == bool(schedule)


def test_a_large_file_is_sampled_all_over(tmp_path: Path) -> None:
    half = GOOD * 200_000
    (issue,) = check(tmp_path, half + "x,red,2,u\n" * (CHUNK * 2 // 10) + half)
    assert (issue.key, issue.line, issue.found) == ("a", None, "x")
    assert "near byte" in issue.message
    (issue,) = check(tmp_path, "x,red,2,u\n" + half)
    assert (issue.key, issue.line) == ("a", 2)


def test_a_sample_refutes_nothing_that_further_rows_may_show(tmp_path: Path) -> None:
    """All sampled rows have one class, no value of b, and one row of a class."""
    assert check(tmp_path, "1,,2,u\n" * 300_000) == []


def test_a_quoted_line_break_does_not_spoil_a_sample(tmp_path: Path) -> None:
    rows = '1,"red\n\ncar",2,u\n2,blue,3,v\n'
    for shift in range(0, len(rows), 9):  # of the cut behind the first bytes
        assert check(tmp_path, f"1,{'r' * shift},2,u\n" + rows * 8_000, whole_bytes=10_000) == []


def check_text(folder: Path, content: str, spec: str, *, whole: bool) -> list[ValidationIssue]:
    store = open_store(str(folder))
    info = store.put("data.csv", content.encode())
    limits = IntakeLimits(whole_bytes=1 << 30 if whole else 1_000)
    return list(check_columns(store, [info], "csv", load_spec(spec.encode()), limits).issues)


@pytest.mark.parametrize("whole", [True, False])
def test_a_quote_that_is_never_closed(tmp_path: Path, whole: bool) -> None:
    content = f'a,b,c,y\n{GOOD}1,"red,2,u\n{GOOD * 60_000}'
    (issue,) = check_text(tmp_path, content, SPEC, whole=whole)
    assert (issue.line, issue.key, "never closed" in issue.message) == (4, "b", True)


@pytest.mark.parametrize("whole", [True, False])
def test_a_cell_may_be_as_long_as_a_record(tmp_path: Path, whole: bool) -> None:
    cell = f'"{{""text"": ""{"t" * 200_000}""}}"'
    rows = "".join(f"{n % 7},red,{n % 5},{cell},{'uv'[n % 2]}\n" for n in range(30))
    spec = SPEC.replace('target = "y"', 'target = "y"\ndrop = ["long"]')
    assert check_text(tmp_path, f"a,b,c,long,y\n{rows}", spec, whole=whole) == []


def test_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1.0, 2.0] * 5, "b": [[1], [2]] * 5, "y": ["u", "v"] * 5})
    (issue,) = check(tmp_path, frame)
    assert (issue.key, "nested" in issue.message) == ("b", True)
    (issue,) = check(tmp_path, frame, whole_bytes=10)
    assert issue.key == "b"
    assert check(tmp_path, frame.drop("b"), whole_bytes=10) == []


def test_a_small_parquet_file_with_many_cells(tmp_path: Path) -> None:
    frame = pl.select(a=pl.repeat(1.0, CELLS), y=pl.repeat("u", CELLS))
    assert check(tmp_path, frame) == []


@pytest.mark.parametrize("whole_bytes", [1 << 30, 1 << 20], ids=["all", "sample"])
@pytest.mark.parametrize("data_format", ["csv", "parquet"])
def test_a_table_that_needs_more_memory_is_refused(
    tmp_path: Path, data_format: str, whole_bytes: int
) -> None:
    rows = 400_000
    columns = {name: pl.int_range(rows, eager=True) % 1_000 for name in "abc"}
    frame = pl.DataFrame(columns | {"y": pl.int_range(rows, eager=True) % 2})
    spec = SPEC + '[resources]\nmemory = "{}m"'
    content = frame if data_format == "parquet" else frame.write_csv(include_header=False)
    assert check(tmp_path, content, spec.format(230), whole_bytes) == []
    (issue,) = check(tmp_path, content, spec.format(195), whole_bytes)
    assert issue.key == "resources.memory"
    assert "3 features" in issue.found
    assert "195 MiB" in issue.expected
    assert 'raise [resources] memory to "256 MiB", keep at most 1 of' in issue.hint
    assert "fit" in issue.message
    (issue,) = check(tmp_path, content, spec.format(64), whole_bytes)
    assert "keep" not in issue.hint


def test_two_rows_are_held_out_for_a_regression(tmp_path: Path) -> None:
    spec = SPEC.replace("classifier", "regressor")
    rows = [f"{row},red,2,{row}.5\n" for row in range(6)]
    assert check(tmp_path, "".join(rows), spec) == []
    (issue,) = check(tmp_path, "".join(rows[:5]), spec)
    assert (issue.key, issue.expected) == ("y", "at least 6 rows")


def sampled(folder: Path, name: str, content: bytes, spec: str = SPEC) -> Findings:
    store = open_store(str(folder))
    store.put(name, content)
    info = store.head(name)
    assert info
    limits = IntakeLimits(whole_bytes=1_000, head_bytes=4_096)
    kind = "parquet" if name.endswith(".parquet") else "csv"
    return check_columns(store, [info], kind, load_spec(spec.encode()), limits)


LATE = "a,b,c,y\n" + GOOD * 60_000 + "x,red,2,u\n" * 10_000 + GOOD * 60_000


def test_a_large_compressed_file_is_sampled_all_over(tmp_path: Path) -> None:
    found = sampled(tmp_path, "data.csv.gz", gzip.compress(LATE.encode(), 1))
    (issue,) = found.issues
    assert (issue.key, issue.found, issue.file) == ("a", "x", "data.csv.gz")
    assert issue.line
    assert LATE.splitlines()[issue.line - 1] == "x,red,2,u"
    good = sampled(tmp_path, "data.csv.gz", gzip.compress(LATE.replace("x,", "3,").encode(), 1))
    assert good.issues == ()
    assert "Rows from all over data.csv.gz (lines 1 to 250,001) were checked." in good.notes
    cut = sampled(tmp_path, "data.csv.gz", gzip.compress(LATE.encode(), 1)[:-9])
    assert "cannot be read" in cut.issues[0].message


def test_a_large_text_in_utf_16_is_sampled_all_over(tmp_path: Path) -> None:
    spec = SPEC + '[data]\nencoding = "utf-16"\n'
    (issue,) = sampled(tmp_path, "data.csv", LATE.encode("utf-16"), spec).issues
    assert (issue.key, issue.found) == ("a", "x")
    assert "near byte" in issue.message
    (issue,) = sampled(tmp_path, "data.csv", LATE.encode("utf-16")).issues  # which a run refuses, too
    assert "encoded in UTF-16" in issue.message
    assert sampled(tmp_path, "data.csv", LATE.encode(), spec).issues


def test_a_large_parquet_file_is_sampled_all_over(tmp_path: Path) -> None:
    rows = 200_000
    frame = pl.select(a=pl.int_range(rows) % 7, y=pl.int_range(rows) % 2)
    numbers = pl.int_range(rows)
    text = pl.when(numbers < rows // 2).then(pl.lit("1")).otherwise("x" + numbers.cast(pl.String))
    late = frame.with_columns(text=text)
    late.write_parquet(tmp_path / "data.parquet")
    (issue,) = sampled(tmp_path, "data.parquet", (tmp_path / "data.parquet").read_bytes()).issues
    assert issue.key == "text"
    frame.write_parquet(tmp_path / "data.parquet")
    found = sampled(tmp_path, "data.parquet", (tmp_path / "data.parquet").read_bytes())
    assert (found.issues, found.notes) == ((), ("Rows from all over rows 1 to 200,000 were checked.",))
