"""Label files are found, identified and copied; the state of earlier runs survives."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.monitoring import label_files
from dmls_core.monitoring.label_files import (
    MAX_HISTORY,
    RETRY_PERIOD,
    LabelState,
    attempt_id,
    content_id,
    download_label_file,
    download_log_files,
    list_label_files,
    newest_within_limit,
    read_state,
    state_key,
)
from dmls_core.store import ObjectInfo, open_store

FOLDER = "incoming/lab/churn/"
OLD = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


def info(key="a", etag="1", size=1, modified=OLD):
    return ObjectInfo(key=key, etag=etag, size=size, modified=modified)


def test_only_files_that_match_the_pattern_are_labels(store):
    for name in ("labels/2026-01-02.csv", "labels/2026-01-01.csv", "labels/notes.csv", "data/2026-01-01.csv"):
        store.put(FOLDER + name, b"x")
    found = list_label_files(store, "lab", "churn", "labels/{date}.csv")
    assert {file.key.removeprefix(FOLDER) for file in found} == {
        "labels/2026-01-01.csv",
        "labels/2026-01-02.csv",
    }
    assert found == sorted(found, key=lambda file: (file.modified, file.key))


def test_the_spec_the_status_and_hidden_files_are_no_labels(store):
    for name in ("spec.toml", "_status.json", "_status.md", ".part", "labels.csv"):
        store.put(FOLDER + name, b"x")
    assert [file.key for file in list_label_files(store, "lab", "churn", "*")] == [FOLDER + "labels.csv"]


def test_a_job_without_a_state_starts_with_an_empty_one(store):
    assert read_state(store, "lab", "churn") == LabelState()


def test_the_state_is_read_as_it_was_written_with_the_latest_entries_of_the_history(store):
    history = [{"at": str(number)} for number in range(MAX_HISTORY + 5)]
    state = LabelState({"key": "etag"}, tried="t", waiting="w", history=history)
    store.put(state_key("lab", "churn"), json.dumps(state.as_json()).encode())
    found = read_state(store, "lab", "churn")
    assert (found.files, found.tried, found.waiting) == ({"key": "etag"}, "t", "w")
    assert found.history == history[-MAX_HISTORY:]


def test_the_id_of_files_changes_with_their_keys_and_contents_alone():
    assert content_id([info()]) == content_id([info(size=9, modified=OLD + timedelta(1))])
    assert (
        len({content_id([info()]), content_id([info("b")]), content_id([info(etag="2")]), content_id([])})
        == 4
    )


def test_old_labels_are_not_tried_again_as_the_log_grows():
    first, longer = [info("log")], [info("log"), info("log2", modified=OLD + timedelta(1))]
    assert attempt_id([info()], first) == attempt_id([info()], longer)


def test_recent_labels_are_tried_again_as_the_log_grows():
    recent = info(modified=datetime.now(UTC) - RETRY_PERIOD / 2)
    first, longer = [info("log")], [info("log"), info("log2", modified=OLD + timedelta(1))]
    assert attempt_id([recent], first) != attempt_id([recent], longer)
    assert attempt_id([recent], longer) == attempt_id([recent], longer[::-1])


def test_the_newest_files_are_kept_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(label_files, "MAX_BYTES", 10)
    files = [info("a", size=1), info("b", size=4), info("c", size=6)]
    assert [file.key for file in newest_within_limit(files)] == ["b", "c"]
    assert newest_within_limit([info("large", size=11)]) == []


def test_a_copy_keeps_its_name_and_its_own_folder(store, tmp_path):
    for folder in ("one", "two"):
        store.put(f"{FOLDER}{folder}/labels.csv", folder.encode())
    files = list_label_files(store, "lab", "churn", "*/labels.csv")
    paths = [download_label_file(store, file, tmp_path, number) for number, file in enumerate(files)]
    assert {path.name for path in paths} == {"labels.csv"}
    assert {path.read_bytes() for path in paths} == {b"one", b"two"}


def test_the_log_is_copied_newest_first_file_by_file_up_to_the_limits(store, tmp_path, monkeypatch):
    logged = []
    for day in range(4):
        store.put(f"log/{day}", str(day).encode())
        logged.append(info(f"log/{day}", size=4, modified=OLD + timedelta(day)))
    monkeypatch.setattr(label_files, "MAX_LOG_BYTES", 12)
    assert [path.read_bytes() for path in download_log_files(store, logged, tmp_path)] == [b"3", b"2", b"1"]
    monkeypatch.setattr(label_files, "MAX_LOG_FILES", 2)
    assert [path.read_bytes() for path in download_log_files(store, logged, tmp_path)] == [b"3", b"2"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["logged.parquet"]
