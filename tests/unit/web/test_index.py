"""The rows of the table out of what the store and Airflow say."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dmls_core.errors import StoreError
from dmls_core.intake.answers import write_status
from dmls_core.monitoring.prometheus import drift_file
from dmls_core.store import Registry, Store, layout, open_store
from dmls_core.web.index.merge import merge
from dmls_core.web.index.scheduled import Dag, Outcomes, ScheduledJobs
from dmls_core.web.index.stored import StoredJobs
from dmls_core.web.index.waits import Wait, queue_up, wait_for_runs


def stored(root: Path) -> tuple[Store, StoredJobs]:
    store = open_store(str(root))
    return store, StoredJobs(store)


def test_a_row_joins_registry_answer_airflow_and_triton(root: Path, accept: Callable[..., object]):
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "churn", "deployed", "deployed as version 3")
    for source, verdict in (("requests", "drifted"), ("data", "steady")):
        key = layout.latest_drift("sales", "churn", source, "drift.json")
        store.put(key, json.dumps({"verdict": verdict}).encode())
        store.put(drift_file("sales", "churn", source), b"")
    jobs.refresh()
    dag_id = "dmls.sales.churn"
    outcomes = Outcomes()
    for run, score, model in (("a", 0.7, 4), ("b", 0.9, 5)):
        outcomes.take(run, "evaluate", {"score": score, "metric": "accuracy", "direction": "maximize"})
        outcomes.take(run, "register", {"model_version": model})
    outcomes.take("b", "promote", {"version": 3})
    scheduled = ScheduledJobs(
        dags={dag_id: Dag(paused=True, next_run=datetime(2026, 1, 2, tzinfo=UTC))},
        waits={dag_id: Wait(2, "dmls_cpu", "all 2 slots are in use")},
        outcomes={dag_id: outcomes},
    )

    (row,) = merge(jobs, scheduled, {"sales.churn": 3})

    assert (row.state, row.message, row.served, row.drift) == (
        "deployed",
        "deployed as version 3",
        3,
        "drifted",
    )
    assert row.champion == 5
    assert (row.models, row.owner, row.version) == (("random-forest-classifier",), "sales", 1)
    assert (row.scores, row.score, row.metric) == ((0.7, 0.9), 0.9, "accuracy")
    assert (row.paused, row.next_run) == (True, "2026-01-02T00:00:00+00:00")
    assert (row.queue, row.waiting) == (2, "all 2 slots are in use")


def test_a_rejected_drop_is_a_row_and_a_job_without_an_answer_too(root: Path, accept: Callable[..., object]):
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "Not A Name", "rejected", "cannot name a job")
    jobs.refresh()

    rows = {row.name: row.state for row in merge(jobs, ScheduledJobs(), {})}

    assert rows == {"churn": "registered", "Not A Name": "rejected"}


def test_only_what_has_changed_is_read_again_and_what_is_gone_is_forgotten(
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


def test_a_retired_job_says_so(root: Path, accept: Callable[..., object]):
    accept("sales", "churn")
    store, jobs = stored(root)
    Registry(store).retire("sales", "churn")
    write_status(store, "sales", "churn", "waiting", "The spec was taken away")
    jobs.refresh()

    (row,) = merge(jobs, ScheduledJobs(), {})

    assert row.state == "retired"


def test_a_snapshot_brings_all_jobs_at_once(root: Path, accept: Callable[..., object]):
    records = [accept("sales", name) for name in ("churn", "price")]
    store, jobs = stored(root)
    content = {"schema": 1, "jobs": [record.as_json() for record in records]}
    store.put(layout.snapshot("v1"), json.dumps(content).encode())

    jobs.read_snapshot("v1")

    assert jobs.records == {("sales", record.name): record for record in records}


def test_why_a_search_waits_and_where():
    tasks = [
        ("dmls.a.first", "dmls_cpu", "running"),
        ("dmls.a.second", "dmls_cpu", "scheduled"),
        ("dmls.a.third", "dmls_cpu", "queued"),
        ("dmls.a.third", "dmls_cpu", "scheduled"),
        ("dmls.b.first", "dmls_gpu", "scheduled"),
        ("dmls.b.second", "gone", "scheduled"),
        ("dmls.b.third", "roomy", "scheduled"),
    ]

    found = queue_up(tasks, {"dmls_cpu": 2, "dmls_gpu": 0, "roomy": 1})

    assert {dag_id: (wait.place, wait.pool) for dag_id, wait in found.items()} == {
        "dmls.a.third": (1, "dmls_cpu"),
        "dmls.a.second": (2, "dmls_cpu"),
        "dmls.b.first": (1, "dmls_gpu"),
        "dmls.b.second": (1, "gone"),
        "dmls.b.third": (1, "roomy"),
    }
    assert found["dmls.a.second"].reason == "all 2 slots of the pool dmls_cpu are in use"
    assert "as soon as an Airflow worker is free" in found["dmls.a.third"].reason
    assert "no slots" in found["dmls.b.first"].reason
    assert "does not exist" in found["dmls.b.second"].reason
    assert found["dmls.b.third"].reason == "starts in a moment"


def test_a_run_that_has_not_begun_waits_too():
    runs = [("a", "queued", True), ("b", "running", False), ("b", "queued", False), ("c", "queued", False)]

    found = wait_for_runs(runs)

    assert {dag_id: wait.place for dag_id, wait in found.items()} == {"a": None, "b": None, "c": None}
    assert "paused" in found["a"].reason
    assert "before this one" in found["b"].reason
    assert "in a moment" in found["c"].reason


def test_an_answer_that_the_store_did_not_give_once_is_read_at_the_next_refresh(
    root: Path, accept: Callable[..., object], monkeypatch: pytest.MonkeyPatch
):
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "churn", "running", "training")
    jobs.refresh()
    write_status(store, "sales", "churn", "deployed", "deployed as version 3")

    def away(*_: object, **__: object) -> None:
        raise StoreError("503 Slow Down")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "read", away)
        jobs._refresh_statuses(ThreadPoolExecutor(1))
    assert jobs.statuses["sales", "churn"].state == "running"

    jobs.refresh()
    assert jobs.statuses["sales", "churn"].state == "deployed"
