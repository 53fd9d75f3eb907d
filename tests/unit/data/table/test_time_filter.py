"""The rows of an interval: cut out before anything reads the data, whatever the other rows are like."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest

from dmls_core.data.table.time_filter import TimeFilter, filter_files
from dmls_core.errors import DataError

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC)


def cut(path: Path, **changes: object) -> Path:
    arguments = {"column": "t", "since": JANUARY, "until": FEBRUARY} | changes
    (found,) = filter_files([path], TimeFilter(**arguments), path.parent / "cut")
    assert found
    assert found.name == path.name
    return found


def csv(folder: Path, text: str) -> Path:
    path = folder / "data.csv"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("moment", "kept"),
    [
        ("2026-01-01", True),
        ("2026-01-01T00:00:00", True),
        ("2026-01-31 23:59:59.999999", True),
        ("2026-01-31T23:59Z", True),
        (" 2026-01-15 12:00 ", True),
        ("2026-02-01T00:30:00+01:00", True),
        ("2026-02-01T00:30:00+0100", True),
        ("2025-12-31 23:59:59", False),
        ("2026-02-01", False),
        ("2026-01-01T00:30:00+01:00", False),
        ("2026-01-31T23:30:00-01:00", False),
        ("2999-01-01", False),
        ("", False),
        ("31.1.2026", True),
        ("1/2/2026 0:30", False),
        ("1/2/2026 0:30 +01:00", True),
        ("Jan 5, 2026", True),
        ("20260105", True),
    ],
)
def test_a_row_is_kept_by_its_time(tmp_path: Path, moment: str, kept: bool) -> None:
    path = csv(tmp_path, f't,x\n2026-01-02,0\n"{moment}",1\n')
    rows = pl.read_csv(cut(path, order="day-first"))
    assert rows["x"].to_list() == [0, 1][: 1 + kept]


def test_times_without_a_zone_are_of_the_schedule_s(tmp_path: Path) -> None:
    path = csv(tmp_path, "t,x\n2026-01-01 00:30,1\n2026-02-01 00:30,2\n2026-02-01 01:00,3\n")
    kept = cut(path, timezone="Europe/Vienna").read_text().splitlines()[1:]
    assert kept == ["2026-02-01 00:30,2"]


def test_what_is_kept_stays_as_it_is(tmp_path: Path) -> None:
    head = '\ufeff"t", x y ,"a ""b"""\r\n\r\n'
    rows = ['2026-01-02,"one\ntwo",""', "2026-01-03,007,1e5", '2026-01-04,NA,"q""q"']
    path = csv(tmp_path, head + "\r\n".join(["2025-01-01,x,y", *rows, "2027-01-01,x,y"]) + "\r\n")
    copy = cut(path)
    assert copy.read_bytes().startswith(head.encode())
    frame = pl.read_csv(copy, has_header=False, skip_lines=2, infer_schema=False)
    assert frame.rows() == [
        ("2026-01-02", "one\ntwo", ""),
        ("2026-01-03", "007", "1e5"),
        ("2026-01-04", "NA", 'q"q'),
    ]


def test_the_window_may_be_open_at_its_beginning(tmp_path: Path) -> None:
    path = csv(tmp_path, "t\n0001-01-01\n1999-01-01\n2026-01-31\n2026-02-01\n")
    assert cut(path, since=None).read_text().split() == ["t", "0001-01-01", "1999-01-01", "2026-01-31"]


def test_a_broken_record_is_told_and_not_mended(tmp_path: Path) -> None:
    path = csv(tmp_path, "t,x,y\n2026-01-02,1,2\n2026-01-03,1\n")
    with pytest.raises(DataError) as error:
        cut(path)
    assert error.value.issues[0].line == 3


@pytest.mark.parametrize(
    ("text", "hint"), [("02.01.2026", 'date_order = "day-first"'), ("14:05", "a column with the date")]
)
def test_a_text_that_is_no_time_is_told_with_its_line(tmp_path: Path, text: str, hint: str) -> None:
    path = csv(tmp_path, f"t,x\n2026-01-02,1\n{text},2\n")
    with pytest.raises(DataError, match="not a time") as error:
        cut(path)
    (issue,) = error.value.issues
    assert (issue.line, issue.key, issue.found) == (3, "t", text)
    assert hint in issue.hint


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"did you mean 'time'"):
        cut(csv(tmp_path, "time,x\n2026-01-02,1\n"), column="tine")


def test_a_parquet_file_whose_times_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.parquet"
    pl.DataFrame({"t": ["2026-01-02"], "x": [1]}).write_parquet(path)

    def panic(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(pl.LazyFrame, "collect", panic)
    with pytest.raises(DataError, match=r"^d\.parquet: the file cannot be read as Parquet"):
        cut(path)


def test_no_row_at_all(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="no row has a time from 2026-01-01 00:00 UTC to 2026-02-01 00:00 UTC"
    ):
        cut(csv(tmp_path, "t,x\n2025-01-02,1\n"))


@pytest.mark.parametrize(
    "times",
    [
        [date(2025, 12, 31), date(2026, 1, 1), date(2026, 1, 31), date(2026, 2, 1), None],
        [
            datetime.fromisoformat(t) if t else None
            for t in ("2025-12-31T23", "2026-01-01", "2026-01-31T23", "2026-02-01", None)
        ],
        [
            datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2026, 2, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2026, 2, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            None,
        ],
        ["2025-12-31", "2026-01-01", "2026-01-31", "2026-02-01", None],
    ],
    ids=["dates", "times", "times with a zone", "texts"],
)
def test_parquet_by_the_type_of_its_column(tmp_path: Path, times: list[object]) -> None:
    path = tmp_path / "data.parquet"
    frame = pl.DataFrame({"t": times, "x": range(5)})
    frame.write_parquet(path)
    assert pl.read_parquet(cut(path)).equals(frame[1:3])


def test_parquet_with_numbers_for_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pl.DataFrame({"t": [1767225600], "x": [1]}).write_parquet(path)
    with pytest.raises(DataError, match="not a time"):
        cut(path)


def test_files_without_a_row_of_the_interval_are_left_out(tmp_path: Path) -> None:
    for name, day in (("a", "2025-12-31"), ("b", "2026-01-31"), ("c", "2026-02-01")):
        (tmp_path / f"{name}.csv").write_text(f"t,x\n{day},{name}\n")
    paths = [tmp_path / f"{name}.csv" for name in "abc"]
    first, second, third = filter_files(paths, TimeFilter("t", JANUARY, FEBRUARY), tmp_path / "cut")
    assert (first, third) == (None, None)
    assert second
    assert second.read_text() == "t,x\n2026-01-31,b\n"
