"""Names of partitions: a closed set of fields, and from when to when a file's data is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.spec.partitions import parse_pattern

UTC_ZONE = ZoneInfo("UTC")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("path", "name", "start", "end"),
    [
        ("data/{date}.csv", "data/2026-01-05.csv", "2026-01-05", "2026-01-06"),
        ("data/dt={date}/*.parquet", "data/dt=2026-12-31/part 7.parquet", "2026-12-31", "2027-01-01"),
        ("{year}/{month}/{day}/{hour}.csv", "2026/02/28/23.csv", "2026-02-28T23:00", "2026-03-01"),
        ("{year}-{month}.csv", "2026-12.csv", "2026-12-01", "2027-01-01"),
        ("y{year}.parquet", "y2024.parquet", "2024-01-01", "2025-01-01"),
        ("{year}/{date}-?.csv", "2026/2026-03-01-x.csv", "2026-03-01", "2026-03-02"),
        ("a.b/{date}.csv", "a.b/2024-02-29.csv", "2024-02-29", "2024-03-01"),
    ],
)
def test_names_have_an_interval(path: str, name: str, start: str, end: str) -> None:
    pattern = parse_pattern(path)
    assert pattern.period(name, UTC_ZONE) == (at(start), at(end))
    assert name.startswith(pattern.prefix)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/{date}.csv", "data/2026-02-30.csv"),
        ("data/{date}.csv", "data/2026-1-5.csv"),
        ("data/{date}.csv", "data/0000-01-01.csv"),
        ("data/{date}.csv", "other/2026-01-05.csv"),
        ("data/{date}.csv", "data/2026-01-05.csv.part"),
        ("data/{date}.csv", "data/２０２６-01-05.csv"),  # noqa: RUF001
        ("data/*/{date}.csv", "data/a/b/2026-01-05.csv"),
        ("a.b/{date}.csv", "axb/2026-01-05.csv"),
        ("{year}/{date}.csv", "2025/2026-01-05.csv"),
        ("{date}/{date}.csv", "2026-01-05/2026-01-06.csv"),
        ("{year}{month}{day}{hour}", "2026010524"),
        ("{year}.csv", "9999.csv"),
    ],
)
def test_other_names_do_not_match(path: str, name: str) -> None:
    assert parse_pattern(path).period(name, UTC_ZONE) is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{week}.csv", "unknown field {week}"),
        ("{date.year}.csv", "a brace without its other half"),
        ("{date!r}.csv", "a brace without its other half"),
        ("{date:%Y}.csv", "a brace without its other half"),
        ("{0}.csv", "unknown field {0}"),
        ("{}.csv", "unknown field {}"),
        ("{{date}}.csv", "a brace without its other half"),
        ("{date", "a brace without its other half"),
        ("{month}.csv", "{month} without {year}"),
        ("{year}/{day}.csv", "{day} without {month}"),
        ("{hour}.csv", "{hour} without {day}"),
        ("*{date}*a*.csv", "more than 2 *"),
    ],
)
def test_wrong_patterns_are_errors(path: str, words: str) -> None:
    with pytest.raises(ValueError, match="^has ") as error:
        parse_pattern(path)
    assert words in str(error.value)


def test_days_follow_their_time_zone() -> None:
    vienna = ZoneInfo("Europe/Vienna")
    period = parse_pattern("{date}.csv").period("2026-03-29.csv", vienna)
    assert period == (at("2026-03-28T23:00"), at("2026-03-29T22:00"))


@given(st.integers(0, 2_000_000))
def test_an_example_matches_its_interval(hours: int) -> None:
    pattern = parse_pattern("d/{year}/{month}-{day}/{hour}.csv")
    hour = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
    period = pattern.period(pattern.example(hour), UTC_ZONE)
    assert period
    assert period[0] == hour


@given(st.text(alphabet="{}dateyrhoumn*?./-0", max_size=40), st.text(max_size=60))
def test_any_path_and_name_are_handled(path: str, name: str) -> None:
    try:
        pattern = parse_pattern(path)
    except ValueError as error:
        assert str(error).startswith("has ")  # noqa: PT017 - the words follow the key
        return
    assert pattern.period(name, UTC_ZONE) is None or pattern.expression.fullmatch(name)
