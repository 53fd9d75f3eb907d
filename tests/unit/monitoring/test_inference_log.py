"""The inference log: Triton's files become Parquet exactly once, and each is compared exactly once."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from dmls_core.errors import StoreError
from dmls_core.monitoring import inference_log
from dmls_core.monitoring.inference_log import (
    RequestCursor,
    collect,
    download_newest,
    list_requests,
    new_requests,
    read_cursor,
)
from dmls_core.store import ObjectInfo, open_store

DAY = "20990102"
NAME = f"{DAY}T030405Z-0a1b2c3d4e5f"
AT = 1_800_000_000.5
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def file(key: str, seconds: float = 0) -> ObjectInfo:
    return ObjectInfo(key, 10, "e", NOON + timedelta(seconds=seconds))


def entry(size=(1.0, float("nan")), labels=("no", "yes"), **more):
    rows = list(range(len(size)))
    made = {
        "id": "order 7",
        "time": AT,
        "version": 3,
        "rows": rows,
        "columns": {"size": list(size), "who": ["me"] * len(rows)},
        "labels": labels and list(labels),
        "outputs": [[0.25, 0.75] if labels else [1.5] for _ in rows],
    }
    return json.dumps(made | more) + "\n"


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "log" / "lab.parts"
    place.mkdir(parents=True)
    return place


def read(store):
    (files,) = list_requests(store).values()
    return [pl.read_parquet(f"{store.url}/{info.key}") for info in sorted(files, key=lambda info: info.key)]


def test_collect_writes_each_file_as_parquet_under_its_own_name(store, folder):
    (folder / f"{NAME}-3.jsonl").write_text(entry() + entry((5.0,), id="", version=4))
    found = collect(store, folder.parent)
    assert found.rows == {"lab.parts": 3}
    assert list(folder.iterdir()) == []
    assert store.head(f"inference/lab/parts/dt=2099-01-02/{NAME}-3.parquet")
    (frame,) = read(store)
    assert frame["size"].to_list()[::2] == [1.0, 5.0]
    assert frame["dmls.version"].to_list() == [3, 3, 4]
    assert frame["dmls.row"].to_list() == [0, 1, 0]
    assert frame["dmls.request_id"].to_list() == ["order 7", "order 7", ""]
    assert frame["dmls.time"][0].timestamp() == AT
    assert frame["dmls.prediction"].to_list() == ["yes"] * 3
    assert frame["dmls.probability.yes"].to_list() == [0.75] * 3


def test_a_regression_logs_its_value(store, folder):
    (folder / f"{NAME}-2.jsonl").write_text(entry(labels=None))
    collect(store, folder.parent)
    assert read(store)[0]["dmls.prediction"].to_list() == [1.5, 1.5]


def test_one_file_holds_requests_of_versions_with_different_columns_and_labels(store, folder):
    other = entry((2.0,), columns={"size": ["texts now"], "new": [1.0]}, labels=["no", "perhaps"])
    (folder / f"{NAME}-3.jsonl").write_text(entry() + other)
    collect(store, folder.parent)
    (frame,) = read(store)
    assert frame["new"].to_list() == [None, None, 1.0]
    assert frame["size"].to_list()[2] == "texts now"
    assert frame["dmls.probability.perhaps"].to_list() == [None, None, 0.75]


def test_an_interrupted_collect_does_not_duplicate_rows(store, folder, monkeypatch):
    path = folder / f"{NAME}-2.jsonl"
    path.write_text(entry())
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            collect(store, folder.parent)
    (before,) = list_requests(store).values()
    assert path.exists()
    found = collect(store, folder.parent)
    (after,) = list_requests(store).values()
    assert after == before  # not even written again: its time would make it new to the monitor
    assert found.rows == {"lab.parts": 0}
    assert not path.exists()


def test_files_stay_in_the_folder_if_the_store_fails(store, folder, monkeypatch):
    (folder / f"{NAME}-2.jsonl").write_text(entry())

    def refuse(*_):
        raise StoreError("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "create", refuse)
        with pytest.raises(StoreError):
            collect(store, folder.parent)
    assert collect(store, folder.parent).rows == {"lab.parts": 2}


def test_files_of_killed_processes_are_read_up_to_the_last_whole_line(store, folder):
    (folder / f"{NAME}.part").write_text(entry() + entry()[:50])
    young = folder / f"{DAY}T040000Z-ffffffffffff.part"
    young.write_text(entry())
    old = time.time() - 2 * inference_log.ABANDONED_SECONDS
    os.utime(folder / f"{NAME}.part", (old, old))
    assert collect(store, folder.parent).rows == {"lab.parts": 2}
    assert list(folder.iterdir()) == [young]


@pytest.mark.parametrize("content", ["", "no JSON\n", '{"columns": {"a": [1]}}\n', "[]\n"])
def test_an_unreadable_file_is_discarded_and_other_files_are_collected(store, folder, content):
    (folder / f"{NAME}-1.jsonl").write_text(content)
    (folder / f"{DAY}T050000Z-ffffffffffff-2.jsonl").write_text(entry())
    found = collect(store, folder.parent)
    assert (found.rows, found.dropped) == ({"lab.parts": 2}, {"lab.parts": 1})
    assert list(folder.iterdir()) == []


def test_a_file_that_disappears_does_not_stop_collect(store, folder):
    # A link to nothing is listed and cannot be opened, as what Triton renames or removes meanwhile.
    for name in (f"{NAME}.part", f"{NAME}-1.jsonl"):
        (folder / name).symlink_to("gone")
    (folder / f"{DAY}T050000Z-ffffffffffff-2.jsonl").write_text(entry())
    found = collect(store, folder.parent)
    assert (found.rows, found.dropped) == ({"lab.parts": 2}, {"lab.parts": 1})


def test_a_day_has_a_limit_of_files(store, folder, monkeypatch):
    monkeypatch.setattr(inference_log, "MAX_DAY_FILES", 3)
    for hour in range(5):
        (folder / f"{DAY}T0{hour}0000Z-0a1b2c3d4e5f-2.jsonl").write_text(entry())
    (folder / "20990103T000000Z-0a1b2c3d4e5f-2.jsonl").write_text(entry())
    found = collect(store, folder.parent)
    assert (found.rows, found.dropped) == ({"lab.parts": 8}, {"lab.parts": 2})
    again = collect(store, folder.parent)
    assert (again.rows, again.dropped) == ({}, {})


def test_expired_days_are_deleted_and_other_files_are_kept(store, folder):
    store.put("inference/lab/parts/dt=2020-01-01/a.parquet", b"")
    store.put("inference/lab/parts/own.parquet", b"")
    store.put("inference/lab/parts/dt=2099-01-01/b.parquet", b"")
    assert collect(store, folder.parent).removed == 1
    assert {info.key.rpartition("/")[2] for info in store.list("inference/")} == {"own.parquet", "b.parquet"}


def test_a_key_that_no_store_can_hold_stops_nothing(store, folder):
    store.put("inference/lab/parts/dt=2020-01-01/a.parquet", b"")
    (store.root / "inference/lab/parts/dt=2020-01-01/b\x01.parquet").write_bytes(b"")
    assert [len(files) for files in list_requests(store).values()] == [1]
    assert collect(store, folder.parent).removed == 1
    assert list_requests(store) == {}


def test_only_folders_of_models_are_collected(store, folder):
    for name in ("lost+found.d", "lab", ".hidden.x"):
        (folder.parent / name).mkdir()
        (folder.parent / name / f"{NAME}-2.jsonl").write_text(entry())
    (folder.parent / "lab.file").write_text("")
    assert collect(store, folder.parent).rows == {}
    assert collect(store, folder.parent / "none").rows == {}


def test_list_requests_groups_files_by_job_and_ignores_other_objects(store):
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
    assert new_requests(reversed(first), RequestCursor()) == first
    cursor = RequestCursor().advance(first)
    assert new_requests(first, cursor) == []
    late = file("c", 1)
    assert new_requests([*first, late], cursor) == [late]
    cursor = cursor.advance([late])
    assert new_requests([*first, late], cursor) == []
    assert cursor.keys == ("b", "c")
    later = file("d", 2)
    assert cursor.advance([later]).keys == ("d",)


def test_what_was_cursor_survives_the_way_to_the_store_and_has_a_name(store):
    assert read_cursor(store, "lab", "iris") == RequestCursor()
    cursor = RequestCursor().advance([file("a"), file("b")])
    store.put("monitor/lab/iris/" + inference_log.STATE_FILE, json.dumps(cursor.as_json()).encode())
    assert read_cursor(store, "lab", "iris") == cursor
    assert cursor.name.startswith("20260101T120000Z-")
    assert cursor.name != RequestCursor().advance([file("a")]).name


def test_only_the_newest_are_read_where_there_are_too_many(store, monkeypatch, tmp_path):
    files = [
        replace(store.put(f"inference/l/j/{n}.parquet", bytes([n]) * 10), modified=NOON) for n in range(5)
    ]
    monkeypatch.setattr(inference_log, "MAX_BYTES", 25)
    read = [path.read_bytes()[0] for path in download_newest(store, files, tmp_path)]
    assert read == [4, 3]
    monkeypatch.setattr(inference_log, "MAX_BYTES", 5)
    (tmp_path / "one").mkdir()
    assert len(download_newest(store, files, tmp_path / "one")) == 1
