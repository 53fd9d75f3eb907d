"""The rows of the table out of what the store and Airflow say."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from dmls_core.intake.answers import write_status
from dmls_core.orchestration.web.index.merge import merge
from dmls_core.orchestration.web.index.scheduled import Dag, ScheduledJobs, Scores, Wait, wait_reason
from dmls_core.orchestration.web.index.stored import StoredJobs
from dmls_core.store import Registry, Store, layout, open_store


def stored(root: Path) -> tuple[Store, StoredJobs]:
    store = open_store(str(root))
    return store, StoredJobs(store)


def test_a_row_joins_registry_answer_airflow_and_triton(root: Path, accept: Callable[..., object]):
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "churn", "deployed", "deployed as version 3")
    store.put("monitor/sales/churn/drift.json", json.dumps({"verdict": "drifted"}).encode())
    jobs.refresh()
    dag_id = "dmls.sales.churn"
    scheduled = ScheduledJobs(
        dags={dag_id: Dag(paused=True, next_run=datetime(2026, 1, 2, tzinfo=UTC))},
        waits={dag_id: Wait(2, "all 2 slots are in use")},
        scores={dag_id: Scores("accuracy", "maximize", {"a": 0.7, "b": 0.9})},
    )

    (row,) = merge(jobs, scheduled, {"sales.churn": 3})

    assert (row.state, row.message, row.served, row.drift) == (
        "deployed",
        "deployed as version 3",
        3,
        "drifted",
    )
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


def test_why_a_search_waits():
    assert "does not exist" in wait_reason("dmls_cpu", None, 0)
    assert "no slots" in wait_reason("dmls_gpu", 0, 0)
    assert wait_reason("dmls_cpu", 2, 2) == "all 2 slots of the pool dmls_cpu are in use"
    assert wait_reason("dmls_cpu", 2, 1) == "starts in a moment"
