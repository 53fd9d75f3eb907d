"""Which logged requests are new: each is compared once, whatever its time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.monitoring import requests
from dmls_core.monitoring.requests import (
    Seen,
    download_newest,
    list_requests,
    new_requests,
    read_seen,
)
from dmls_core.store import ObjectInfo, open_store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def file(key: str, seconds: float = 0) -> ObjectInfo:
    return ObjectInfo(key, 10, "e", NOON + timedelta(seconds=seconds))


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


def test_files_of_each_job_are_found_and_others_left_alone(store):
    for key in (
        "inference/lab/iris/a.parquet",
        "inference/lab/iris/dt=2026-01-01/b.parquet",
        "inference/lab/zoo/c.parquet",
        "inference/lab/iris/notes.txt",
        "inference/lab/d.parquet",
        "inference/LAB/iris/e.parquet",
    ):
        store.put(key, b"x")
    found = list_requests(store)
    assert {place: {info.key.rpartition("/")[2] for info in files} for place, files in found.items()} == {
        ("lab", "iris"): {"a.parquet", "b.parquet"},
        ("lab", "zoo"): {"c.parquet"},
    }


def test_each_file_is_new_once_even_if_written_in_the_same_second(store):
    first = [file("a"), file("b", 1)]
    assert new_requests(reversed(first), Seen()) == first
    seen = Seen().advance(first)
    assert new_requests(first, seen) == []
    late = file("c", 1)
    assert new_requests([*first, late], seen) == [late]
    seen = seen.advance([late])
    assert new_requests([*first, late], seen) == []
    assert seen.keys == ("b", "c")
    later = file("d", 2)
    assert seen.advance([later]).keys == ("d",)


def test_what_was_seen_survives_the_way_to_the_store_and_has_a_name(store):
    assert read_seen(store, "lab", "iris") == Seen()
    seen = Seen().advance([file("a"), file("b")])
    store.put("monitor/lab/iris/" + requests.STATE, json.dumps(seen.as_json()).encode())
    assert read_seen(store, "lab", "iris") == seen
    assert seen.name.startswith("20260101T120000Z-")
    assert seen.name != Seen().advance([file("a")]).name


def test_only_the_newest_are_read_where_there_are_too_many(store, monkeypatch, tmp_path):
    files = [
        replace(store.put(f"inference/l/j/{n}.parquet", bytes([n]) * 10), modified=NOON) for n in range(5)
    ]
    monkeypatch.setattr(requests, "MAX_BYTES", 25)
    read = [path.read_bytes()[0] for path in download_newest(store, files, tmp_path)]
    assert read == [4, 3]
    monkeypatch.setattr(requests, "MAX_BYTES", 5)
    (tmp_path / "one").mkdir()
    assert len(download_newest(store, files, tmp_path / "one")) == 1
