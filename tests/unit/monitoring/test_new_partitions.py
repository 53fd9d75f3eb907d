"""New partitions are found by the end of their period."""

from __future__ import annotations

import json

import pytest

from dmls_core.monitoring.new_partitions import (
    STATE_FILE,
    PartitionCursor,
    list_new_periods,
    read_partition_cursor,
    source_name,
)
from dmls_core.store import layout, open_store

SPEC = {"data": {"path": "data/dt={date}/*.csv"}, "schedule": {"timezone": "Europe/Vienna"}}


@pytest.fixture
def store(root):
    found = open_store(str(root))
    for name in ("2026-01-05/b", "2026-01-05/a", "2026-01-12/a"):
        found.put(f"incoming/lab/weekly/data/dt={name}.csv", name.encode())
    found.put("incoming/lab/weekly/data/dt=2026-01-19/a.parquet", b"x")
    return found


def test_files_of_a_period_are_grouped_and_ordered_by_time(store):
    first, second = list_new_periods(store, "lab", "weekly", SPEC, "")
    assert [info.key[-16:] for info in first.files] == ["2026-01-05/a.csv", "2026-01-05/b.csv"]
    assert (first.end, second.end) == ("2026-01-05T23:00:00+00:00", "2026-01-12T23:00:00+00:00")
    assert list_new_periods(store, "lab", "weekly", SPEC, first.end) == [second]
    assert list_new_periods(store, "lab", "weekly", SPEC, second.end) == []
    assert source_name("lab", "weekly", first.files) == "data/dt=2026-01-05/a.csv and 1 more"
    assert source_name("lab", "weekly", second.files) == "data/dt=2026-01-12/a.csv"


def test_names_depend_on_content_and_joined_periods_end_with_the_later_one(store):
    first, second = list_new_periods(store, "lab", "weekly", SPEC, "")
    both = first.joined(second)
    assert (len(both.files), both.end) == (3, second.end)
    assert both.name[:16] == second.name[:16] == "20260112T230000Z"
    assert both.name != second.name
    store.put("incoming/lab/weekly/data/dt=2026-01-12/a.csv", b"other")
    assert list_new_periods(store, "lab", "weekly", SPEC, first.end)[0].name != second.name


def test_a_job_without_partitions_has_none(store):
    assert list_new_periods(store, "lab", "weekly", {"data": {"path": None}, "schedule": None}, "") == []
    assert list_new_periods(store, "lab", "weekly", {"data": {"path": "a-*.csv"}, "schedule": None}, "") == []


def test_downloaded_files_have_the_suffix_of_their_format(store, tmp_path):
    (first, _) = list_new_periods(store, "lab", "weekly", SPEC, "")
    assert [path.name for path in first.download(store, tmp_path, None)] == ["0.csv", "1.csv"]
    assert [path.name for path in first.download(store, tmp_path, "parquet")] == ["0.parquet", "1.parquet"]
    assert (tmp_path / "0.csv").read_bytes() == b"2026-01-05/a"


def test_the_cursor_survives_a_round_trip(store):
    assert read_partition_cursor(store, "lab", "weekly") == PartitionCursor()
    noted = PartitionCursor("2026-01-12T23:00:00+00:00", "abc")
    store.put(layout.monitor_folder("lab", "weekly") + STATE_FILE, json.dumps(noted.as_json()).encode())
    assert read_partition_cursor(store, "lab", "weekly") == noted
