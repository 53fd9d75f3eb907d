"""Filters of the templates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.web import filters


def test_ago_is_relative_to_now():
    now = datetime.now(UTC)
    assert filters.ago(now - timedelta(seconds=5)) == "just now"
    assert filters.ago((now - timedelta(hours=2, minutes=5)).isoformat()) == "2 hours ago"
    assert filters.ago(now + timedelta(days=1, minutes=1)) == "in 1 day"
    assert filters.ago("") == ""
    assert filters.timestamp("2026-01-02T03:04:05+01:00") == "2026-01-02 02:04:05 UTC"


@pytest.mark.parametrize(
    ("value", "number", "parameter"),
    [
        (0.93333333, "0.9333", "0.933333"),
        (1234, "1,234", "1234"),
        (0.0000012, "1.2e-06", "1.2e-06"),
        (None, "", "none"),
        (True, "True", "true"),
        ("gini", "gini", "gini"),
    ],
)
def test_numbers_and_parameters(value: object, number: str, parameter: str):
    assert (filters.number(value), filters.parameter(value)) == (number, parameter)


def test_file_sizes_and_durations():
    assert [filters.file_size(count) for count in (12, 2048, 3 << 20, 5 << 40)] == [
        "12 bytes",
        "2.0 KiB",
        "3.0 MiB",
        "5,120.0 GiB",
    ]
    assert [filters.duration(seconds) for seconds in (None, 3.14, 42, 600, 9000)] == [
        "",
        "3.1 s",
        "42 s",
        "10 min",
        "2.5 h",
    ]
