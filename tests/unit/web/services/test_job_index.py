"""The table of jobs: its rows, queries and refresh."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dmls_core.airflow.database import DagState
from dmls_core.errors import StoreError
from dmls_core.intake.status import State
from dmls_core.intake.status_store import write_status
from dmls_core.monitoring.prometheus import drift_file
from dmls_core.store import Registry, Store, layout, open_store, write_served
from dmls_core.web.routers.jobs import JobEntry
from dmls_core.web.services import job_index
from dmls_core.web.services.job_index import (
    SORT_KEYS,
    IndexSnapshot,
    JobIndex,
    JobQuery,
    JobRow,
    Page,
    merge,
    search,
)
from dmls_core.web.services.job_sources import AirflowJobs, Outcomes, StoredJobs
from dmls_core.web.services.queue import Wait

ROWS = [
    JobRow(
        "sales", "churn", state="deployed", owner="Ada", models=("xgboost-classifier",), scores=(0.8, 0.9)
    ),
    JobRow("sales", "price", state="running", owner="Bo", models=("random-forest-regressor",), queue=2),
    JobRow("lab", "iris", state="failed", owner="Ada", message="out of MEMORY", scores=(0.7,)),
    JobRow("lab", "old", state="retired"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_api_lists_every_row(row: JobRow):
    entry = JobEntry(job=f"{row.team}/{row.name}", score=row.score, **asdict(row))

    assert entry.model_dump().items() >= {"name": row.name, "state": row.state, "served": None}.items()


def names(**query: object) -> list[str]:
    return [row.name for row in page_of(ROWS, **{"sort": "job", "descending": False, **query}).rows]


def page_of(rows: list[JobRow], **given: Any) -> Page:
    query = JobQuery(**given)
    return search(IndexSnapshot(tuple(rows)).in_order(query), query)


def test_retired_jobs_are_shown_only_if_their_state_is_selected():
    assert names() == ["iris", "churn", "price"]
    assert names(states=["retired"]) == ["old"]


def test_a_retired_job_that_is_still_served_is_shown():
    rows = [JobRow("lab", "old", state="retired", served=2), JobRow("lab", "older", state="retired")]
    assert [row.name for row in page_of(rows).rows] == ["old"]


def test_every_word_must_occur_regardless_of_case():
    assert names(text="ADA memory") == ["iris"]
    assert names(text="ada sales") == ["churn"]
    assert names(text="sales/price") == ["price"]
    assert names(text="nowhere") == []


def test_filters_are_combined():
    assert names(team="sales") == ["churn", "price"]
    assert names(team="sales", model="xgboost-classifier") == ["churn"]
    assert names(team="lab", states=["running", "deployed"]) == []


def test_missing_values_come_last_in_either_direction():
    assert names(sort="score") == ["iris", "churn", "price"]
    assert names(sort="score", descending=True) == ["churn", "iris", "price"]


def test_a_page_contains_the_totals():
    page = page_of(ROWS, sort="job", descending=False, offset=1, limit=1)
    assert [row.name for row in page.rows] == ["churn"]
    assert page.total == 3
    assert page.states == {"deployed": 1, "failed": 1, "retired": 1, "running": 1}
    assert page.teams == ("lab", "sales")
    assert page.models == ("random-forest-regressor", "xgboost-classifier")


@pytest.mark.parametrize("column", SORT_KEYS)
def test_every_column_sorts_every_row(column: str):
    assert sorted(names(sort=column)) == ["churn", "iris", "price"]


def stored(root: Path) -> tuple[Store, StoredJobs]:
    store = open_store(str(root))
    return store, StoredJobs(store)


def test_a_row_joins_the_registry_the_status_airflow_and_triton(root: Path, accept: Callable[..., object]):
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "churn", "deployed", "deployed as version 3")
    for source, verdict in (("requests", "drifted"), ("data", "steady")):
        key = layout.latest_comparison("sales", "churn", source, "json")
        store.put(key, json.dumps({"verdict": verdict}).encode())
        store.put(drift_file("sales", "churn", source), b"")
    write_served(store, "sales", "churn", 3, {"metric": "accuracy", "score": 0.7}, by="a run")
    jobs.refresh()
    assert jobs.drift == {("sales", "churn"): "drifted"}
    key = layout.latest_comparison("sales", "churn", "labels", "json")
    store.put(key, b'{"verdict": "decayed"}')
    store.put(layout.metrics_folder("sales", "churn") + "decay.prom", b"")
    jobs.refresh()
    dag_id = "dmls.sales.churn"
    outcomes = Outcomes()
    for run, score in (("a", 0.7), ("b", 0.9)):
        outcomes.add(run, {"score": score, "metric": "accuracy", "direction": "maximize"})
    airflow = AirflowJobs(
        dags={dag_id: DagState(paused=True, next_run=datetime(2026, 1, 2, tzinfo=UTC))},
        waits={dag_id: Wait(2, "dmls_cpu", "all 2 slots are in use")},
        outcomes={dag_id: outcomes},
    )

    (row,) = merge(jobs, airflow, {"sales.churn": 4})

    assert (row.state, row.message, row.served, row.drift) == (
        "deployed",
        "deployed as version 3",
        3,
        "decayed",
    )
    assert (row.models, row.owner, row.version) == (("random-forest-classifier",), "sales", 1)
    # The score stands beside the served version, not the latest run's.
    assert (row.scores, row.score, row.metric) == ((0.7, 0.9), 0.7, "accuracy")
    assert (row.paused, row.next_run) == (True, "2026-01-02T00:00:00+00:00")
    assert (row.queue, row.waiting) == (2, "all 2 slots are in use")


@pytest.mark.parametrize(("state", "served"), [("stopped", None), ("failed", 4)])
def test_triton_is_asked_for_the_served_version_unless_the_model_was_stopped(
    root: Path, accept: Callable[..., object], state: State, served: int | None
):
    # What is known of Triton may be as of before the stop.
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "churn", state, "")
    jobs.refresh()

    (row,) = merge(jobs, AirflowJobs(), {"sales.churn": 4})

    assert row.served == served


def test_a_rejected_submission_and_a_job_without_a_status_are_rows(root: Path, accept: Callable[..., object]):
    accept("sales", "churn")
    store, jobs = stored(root)
    write_status(store, "sales", "Not A Name", "rejected", "cannot name a job")
    jobs.refresh()

    rows = {row.name: row.state for row in merge(jobs, AirflowJobs(), {})}

    assert rows == {"churn": "registered", "Not A Name": "rejected"}


def test_a_retired_job_has_its_own_state(root: Path, accept: Callable[..., object]):
    accept("sales", "churn")
    store, jobs = stored(root)
    Registry(store).retire("sales", "churn")
    write_status(store, "sales", "churn", "waiting", "The spec was deleted")
    jobs.refresh()

    (row,) = merge(jobs, AirflowJobs(), {})

    assert row.state == "retired"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, root: Path, accept: Callable[..., object]) -> Iterator[JobIndex]:
    """An index of one job, whose thread ends when it is not used for a moment; without Airflow and Triton."""
    accept("sales", "churn")
    for name, seconds in {"MIN_INTERVAL": 0.01, "BACKOFF_FACTOR": 0, "IDLE_SECONDS": 0.1}.items():
        monkeypatch.setattr(job_index, name, seconds)
    for reader in ("_read_airflow", "_read_triton", "_find_late", "_read_registry"):
        monkeypatch.setattr(JobIndex, reader, lambda *_: None)
    monkeypatch.setattr(job_index, "open_store", lambda: open_store(str(root)))
    index = JobIndex()
    yield index
    monkeypatch.setattr(job_index, "IDLE_SECONDS", 0.0)
    index._refresh_now.set()
    if thread := index._thread:
        thread.join()


def states(index: JobIndex) -> list[str]:
    return [row.state for row in index.snapshot().rows]


def first_complete(index: JobIndex) -> IndexSnapshot:
    while not (snapshot := index.snapshot()).complete:
        time.sleep(0.01)
    return snapshot


def let_the_thread_end(index: JobIndex) -> None:
    while index._thread is not None:
        time.sleep(0.01)


def test_the_first_read_after_an_idle_time_has_what_changed_meanwhile(index: JobIndex, root: Path):
    write_status(open_store(str(root)), "sales", "churn", "running", "training 1/5")
    first_complete(index)
    let_the_thread_end(index)
    write_status(open_store(str(root)), "sales", "churn", "deployed", "deployed as version 1")

    assert states(index) == ["deployed"]


def test_a_read_after_a_change_made_here_has_it(index: JobIndex, root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_index, "MIN_INTERVAL", 60.0)
    first_complete(index)
    write_status(open_store(str(root)), "sales", "churn", "stopped", "stopped by Ada")
    index.refresh()

    assert states(index) == ["stopped"]


def test_rows_that_cannot_be_refreshed_say_their_age(index: JobIndex, monkeypatch: pytest.MonkeyPatch):
    assert first_complete(index).as_of <= datetime.now(UTC).isoformat()
    let_the_thread_end(index)
    before = index._snapshot = replace(index._snapshot, as_of="2026-01-02T00:00:00+00:00")

    def refuse(_: StoredJobs) -> None:
        raise StoreError("the store does not respond")

    monkeypatch.setattr(StoredJobs, "refresh", refuse)
    after = index.snapshot()

    assert (after.rows, after.complete, after.as_of) == (before.rows, True, before.as_of)
    assert after.troubles == ("The store does not respond: its columns may be out of date",)


def test_a_read_does_not_wait_for_ever(index: JobIndex, monkeypatch: pytest.MonkeyPatch):
    before = first_complete(index)
    let_the_thread_end(index)
    monkeypatch.setattr(job_index, "READ_SECONDS", 0.01)
    monkeypatch.setattr(StoredJobs, "refresh", lambda _: time.sleep(0.2))

    assert index.snapshot() == before, "rows of the last refresh, with its time"
