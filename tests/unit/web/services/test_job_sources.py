"""Jobs as the store has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dmls_core.airflow import metadata
from dmls_core.airflow.metadata import DagState
from dmls_core.airflow.timetables import submission_run_id
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


def test_an_accepted_version_without_a_run_is_reported_after_a_minute(
    accept: Callable[..., JobRecord], monkeypatch: pytest.MonkeyPatch
):
    now = datetime.now(UTC)
    old = (now - timedelta(minutes=5)).isoformat()
    names = ("new", "started", "paused", "stuck", "unknown")
    records = {name: replace(accept("sales", name), admitted=old) for name in names}
    records["new"] = replace(records["new"], admitted=now.isoformat())
    queried = []

    def existing_runs(_: object, run_ids: list[str]) -> set[tuple[str, str]]:
        queried.append(len(run_ids))
        return {("dmls.sales.started", submission_run_id(1, records["started"].run_key))}

    monkeypatch.setattr(metadata, "existing_runs", existing_runs)
    dags = {f"dmls.sales.{name}": DagState(name == "paused", None) for name in names if name != "unknown"}
    jobs = AirflowJobs(dags=dags)
    for _ in range(2):
        jobs.find_late(None, records.values())
        assert jobs.late.keys() == {f"dmls.sales.{name}" for name in ("paused", "stuck", "unknown")}
    assert queried == [4, 3], "a run that is there is not looked up again"
    assert "has not started version 1, accepted" in jobs.late["dmls.sales.stuck"]
    assert "it has no DAG of the job yet" in jobs.late["dmls.sales.unknown"]
    assert "the job is paused" in jobs.late["dmls.sales.paused"]
