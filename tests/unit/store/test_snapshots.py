"""Snapshots: a tree of records of which a change writes a few nodes, and what happens to old ones."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dmls_core.errors import NotFoundError
from dmls_core.store import JobRecord, layout, open_store, snapshots
from dmls_core.store.local import LocalStore
from dmls_core.store.snapshots import KEEP, LEAF_JOBS, Snapshots

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def records(count: int) -> list[JobRecord]:
    return [
        JobRecord(f"team{i % 7}", f"job{i}", "0" * 64, (), f"{i:016x}", NOW.isoformat(), 1)
        for i in range(count)
    ]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    found = open_store(str(tmp_path / "root"))
    assert isinstance(found, LocalStore)
    return found


def stored(store: LocalStore) -> dict[str, int]:
    return {info.key: info.size for info in store.list(layout.SNAPSHOTS)}


def set_age(store: LocalStore, age: timedelta, *versions: str) -> None:
    """Let objects seem to have been written that long ago."""
    for key in [layout.snapshot(version) for version in versions] or stored(store):
        path = Path(store.url.removeprefix("file://")) / key
        at = time.time() - age.total_seconds()
        os.utime(path, (at, at))


def pass_a_day(store: LocalStore) -> None:
    """Let all objects seem to have been written a day earlier."""
    for key in stored(store):
        path = Path(store.url.removeprefix("file://")) / key
        at = path.stat().st_mtime - timedelta(days=1).total_seconds()
        os.utime(path, (at, at))


@pytest.mark.parametrize("count", [0, 1, LEAF_JOBS, LEAF_JOBS + 1, 1500])
def test_a_snapshot_returns_the_records_it_was_made_of(store: LocalStore, count: int):
    jobs = records(count)

    version = Snapshots(store).write(jobs)

    found = Snapshots(store).read(version)
    assert sorted(found, key=lambda job: job.run_key) == jobs
    assert all(Snapshots(store).find(version, job.team, job.name) == job for job in jobs[::97])
    assert Snapshots(store).find(version, "team0", "absent") is None


def test_the_version_depends_on_the_records_and_not_on_their_order(store: LocalStore):
    jobs = records(500)

    assert Snapshots(store).write(jobs) == Snapshots(store).write(jobs[::-1])
    assert Snapshots(store).write(jobs) != Snapshots(store).write(jobs[:-1])


@pytest.mark.parametrize("count", [200, 2000, 10_000])
def test_a_change_writes_as_little_however_many_jobs_there_are(store: LocalStore, count: int):
    jobs = records(count)
    snapshots = Snapshots(store)
    first = snapshots.write(jobs)
    before = stored(store)

    jobs[5] = replace(jobs[5], version=2)
    second = snapshots.write(jobs)

    new = {key: size for key, size in stored(store).items() if key not in before}
    assert len(new) <= 4
    assert sum(new.values()) < 400 * LEAF_JOBS
    versions = [Snapshots(store).find(version, "team5", "job5") for version in (first, second)]
    assert [job.version for job in versions if job] == [1, 2]


def test_a_snapshot_of_an_earlier_release_can_be_read(store: LocalStore):
    jobs = records(300)
    content = {"schema": 1, "jobs": [job.as_json() for job in jobs]}
    store.put(layout.snapshot("0123456789abcdef"), json.dumps(content).encode())

    assert Snapshots(store).read("0123456789abcdef") == jobs
    assert Snapshots(store).find("0123456789abcdef", "team3", "job3") == jobs[3]


def test_old_snapshots_go_and_what_is_needed_stays(store: LocalStore):
    jobs = records(300)
    old = Snapshots(store).write(jobs)
    set_age(store, 2 * KEEP)
    jobs[5] = replace(jobs[5], version=2)
    current = Snapshots(store).write(jobs)

    deleted = Snapshots(store).delete_old(jobs, datetime.now(UTC))

    assert deleted == 2  # the root and the leaf of the first state
    with pytest.raises(NotFoundError, match="was deleted, 90 days after its last use"):
        Snapshots(store).read(old)
    assert len(Snapshots(store).read(current)) == 300
    assert Snapshots(store).delete_old(jobs, datetime.now(UTC)) == 0


def test_a_snapshot_stays_after_its_last_use_and_none_is_read(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(snapshots, "KEEP", timedelta(days=6))
    writer, jobs, states = Snapshots(store), records(300), dict[int, str]()
    for day in range(16):
        pass_a_day(store)
        if day in (0, 2, 12, 14):
            jobs[day] = replace(jobs[day], version=2)
            states[day] = writer.write(jobs)
        with monkeypatch.context() as patch:
            patch.setattr(store, "get", pytest.fail)
            Snapshots(store).delete_old(jobs, datetime.now(UTC))

    with pytest.raises(NotFoundError):
        Snapshots(store).read(states[0])  # in use until day 2
    for day in (2, 12, 14):
        assert len(Snapshots(store).read(states[day])) == 300


def test_the_current_snapshot_stays_however_old(store: LocalStore):
    jobs = records(300)
    version = Snapshots(store).write(jobs)
    set_age(store, 10 * KEEP)

    assert Snapshots(store).delete_old(jobs, datetime.now(UTC)) == 0
    assert len(Snapshots(store).read(version)) == 300


def test_a_state_that_comes_back_is_as_new(store: LocalStore):
    jobs = records(300)
    version = Snapshots(store).write(jobs)
    set_age(store, 2 * KEEP)

    assert Snapshots(store).write(jobs) == version
    assert Snapshots(store).delete_old(records(1), datetime.now(UTC)) == 0
    assert len(Snapshots(store).read(version)) == 300
