"""Jobs whose data is partitioned: admitted once, whatever arrives later."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core.intake import admit, find_submissions, read_status, update_run_status
from dmls_core.store import Store, open_store
from tests.unit.intake.uploads import CSV, SPEC, drop


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def test_they_are_admitted_once_and_new_ones_make_no_new_version(store: Store) -> None:
    drop(store, {"data/2026-01-05.csv": CSV})
    assert admit(store, "growth", "iris").message.startswith("Waiting for the spec")
    spec = SPEC + b'[data]\npath = "data/{date}.csv"\n[schedule]\ncron = "@weekly"\n'
    drop(store, {"spec.toml": spec})
    (submission,) = find_submissions(store)
    first = admit(store, submission.team, submission.job)
    assert (first.state, first.record.version, first.record.data) == ("accepted", 1, ())
    assert "data/{date}.csv" in first.message
    drop(store, {"data/2026-01-12.csv": CSV})
    assert admit(store, "growth", "iris").record == first.record


def test_a_job_on_data_takes_the_newest_one(store: Store) -> None:
    spec = SPEC + b'[data]\npath = "data/{date}*.csv"\n[schedule]\non = "data"\n'
    drop(store, {"data/2026-01-05.csv": CSV, "data/2026-01-12 b.csv": CSV, "data/2026-01-12.csv": CSV})
    drop(store, {"data/2026-02-31.csv": CSV, "spec.toml": spec})
    first = admit(store, "growth", "iris").record
    names = [item.key.rpartition("/")[2] for item in first.data]
    assert names == ["2026-01-12 b.csv", "2026-01-12.csv"]
    drop(store, {"data/2026-01-11.csv": CSV})
    assert admit(store, "growth", "iris").record == first
    drop(store, {"data/2026-01-19.csv": CSV})
    second = admit(store, "growth", "iris").record
    assert (second.version, len(second.data)) == (2, 1)


def test_before_the_first_one_the_job_waits(store: Store) -> None:
    spec = SPEC + b'[data]\npath = "data/{date}.csv"\n'
    drop(store, {"spec.toml": spec, "data/today.csv": CSV, "2026-01-05.csv": CSV})
    assert "upload data/{date}.csv next to" in admit(store, "growth", "iris").message


def test_a_file_in_a_folder_is_no_data_without_a_pattern(store: Store) -> None:
    drop(store, {"spec.toml": SPEC, "data/iris.csv": CSV})
    outcome = admit(store, "growth", "iris")
    assert outcome.state == "waiting"
    assert 'path = "data/{date}.csv"' in outcome.message


def test_the_state_of_a_run_stays_when_a_partition_comes(store: Store) -> None:
    spec = SPEC + b'[data]\npath = "{date}.csv"\n'
    drop(store, {"spec.toml": spec, "2026-01-05.csv": CSV})
    key = admit(store, "growth", "iris").record.run_key
    assert update_run_status(store, "growth", "iris", key, "deployed", "well", run="abc")
    drop(store, {"2026-01-06.csv": CSV})
    assert admit(store, "growth", "iris").state == "deployed"
    status = read_status(store, "growth", "iris")
    assert (status.run, status.run_folder_key, status.run_key) == ("abc", "abc", key)
