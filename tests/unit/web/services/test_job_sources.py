"""Jobs as the store has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dmls_core.airflow import database
from dmls_core.errors import StoreError
from dmls_core.intake.status_store import write_status
from dmls_core.store import JobRecord, Registry, Store, layout, open_store
from dmls_core.web.services.job_sources import AirflowJobs, StoredJobs


def stored(root: Path) -> tuple[Store, StoredJobs]:
    store = open_store(str(root))
    return store, StoredJobs(store)


def test_a_refresh_reads_only_changed_objects_and_forgets_deleted_ones(
    root: Path, accept: Callable[..., object]
):
    accept("sales", "churn")
    accept("sales", "price")
    store, jobs = stored(root)
    write_status(store, "sales", "churn", "running", "training")
    write_status(store, "sales", "price", "running", "training")
    jobs.refresh()
    before = jobs.statuses["sales", "churn"]
    write_status(store, "sales", "price", "failed", "broke")
    store.put("incoming/sales/other/_status.json", b"not JSON")
    Registry(store).retire("sales", "churn")
    jobs.refresh()

    assert jobs.statuses["sales", "churn"] is before
    assert jobs.statuses["sales", "price"].state == "failed"
    assert ("sales", "other") not in jobs.statuses

    store.delete(layout.incoming_file("sales", "price", layout.STATUS_JSON))
    jobs.refresh()
    assert ("sales", "price") not in jobs.statuses


def test_a_status_whose_key_no_store_can_hold_is_ignored(root: Path, caplog: pytest.LogCaptureFixture):
    store, jobs = stored(root)
    write_status(store, "sales", "price", "running", "training")
    (root / "incoming/sales/bad\x01").mkdir()
    (root / "incoming/sales/bad\x01/_status.json").write_bytes(b"{}")
    jobs.refresh()
    assert list(jobs.statuses) == [("sales", "price")]
    assert not caplog.records


def test_a_registry_snapshot_contains_all_jobs(root: Path, accept: Callable[..., object]):
    records = [accept("sales", name) for name in ("churn", "price")]
    store, jobs = stored(root)
    content = {"schema": 1, "jobs": [record.as_json() for record in records]}
    store.put(layout.snapshot("v1"), json.dumps(content).encode())

    jobs.read_snapshot("v1")

    assert jobs.records == {("sales", record.name): record for record in records}


def test_a_status_that_could_not_be_read_is_read_at_the_next_refresh(
    root: Path, accept: Callable[..., object], monkeypatch: pytest.MonkeyPatch
):
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "churn", "running", "training")
    jobs.refresh()
    write_status(store, "sales", "churn", "deployed", "deployed as version 3")

    def fail(*_: object, **__: object) -> None:
        raise StoreError("503 Slow Down")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "read", fail)
        jobs._refresh_statuses(ThreadPoolExecutor(1))
    assert jobs.statuses["sales", "churn"].state == "running"

    jobs.refresh()
    assert jobs.statuses["sales", "churn"].state == "deployed"


def test_only_accepted_versions_without_a_run_are_looked_at(
    accept: Callable[..., JobRecord], root: Path, monkeypatch: pytest.MonkeyPatch
):
    store, jobs = stored(root)
    for name in ("new", "running", "unanswered"):
        record = accept("sales", name)
        if name != "unanswered":
            state = "accepted" if name == "new" else "running"
            write_status(store, "sales", name, state, "", run_key=record.run_key)
    jobs.refresh()
    airflow, waiting = AirflowJobs(), []
    monkeypatch.setattr(database, "existing_runs", lambda *_: set())
    monkeypatch.setattr(airflow._versions, "find", lambda _, records: waiting.extend(records) or {})
    airflow.find_late(None, jobs)
    assert {record.name for record in waiting} == {"new", "unanswered"}
