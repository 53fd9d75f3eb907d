"""A failed run whose status still says that it runs: corrected once it has had time to report itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.log import Log
from sqlalchemy import update

from dmls_core.airflow.database import DagRun
from dmls_core.airflow.operations import unreported_failures
from dmls_core.airflow.operations.unreported_failures import MESSAGE, STOPPED, UnreportedFailures
from dmls_core.airflow.runs.status import INTERRUPTED
from dmls_core.errors import StoreError
from dmls_core.intake import read_status, update_run_status
from tests.support.airflow_database import add_dag
from tests.support.airflow_database import add_run as support_run
from tests.unit.airflow.operations.test_watchdog import accepted, add_run, session, store  # noqa: F401 - fixtures

LINKS = {"airflow": "http://airflow/dags/dmls.lab.iris/runs/submission-1__a%2Bb"}


BY_ANN = STOPPED.format("ann", " on 9 November 2026 at 07:05 UTC")


class Look:
    """The correction as the watchdog calls it, at a time that the test says."""

    def __init__(self, database: Any, root: Any, clock: SimpleNamespace) -> None:
        self.failures, self.session, self.store, self.clock = UnreportedFailures(), database, root, clock

    def __call__(self, after: float = 0.0) -> tuple[str, str]:
        self.clock.now += after
        self.failures.observe(self.session)
        self.failures.correct(self.session, self.store)
        status = read_status(self.store, "lab", "iris")
        return status.state, status.message

    def end(self, state: str) -> None:
        self.session.execute(update(DagRun).values(state=state))


@pytest.fixture
def look(session, store, accepted, monkeypatch) -> Look:  # noqa: F811
    """A run that is under way, and was seen so."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(unreported_failures, "time", SimpleNamespace(monotonic=lambda: clock.now))
    record = accepted()
    moment = record.admitted_at
    add_run(session, "submission-1__a+b", (moment, moment), state="running")
    update_run_status(store, "lab", "iris", record.run_key, "running", "searching", links=LINKS)
    found = Look(session, store, clock)
    assert found() == ("running", "searching")
    return found


def test_the_status_follows_after_a_while(look):
    look.end("failed")
    assert look(1) == ("running", "searching"), "its own report may come"
    assert look(30) == ("failed", MESSAGE)


@pytest.mark.parametrize(
    ("event", "body", "run_id", "message"),
    [
        ("patch_dag_run", {"state": "failed"}, "submission-1__a+b", BY_ANN),
        ("patch_task_instance", {"new_state": "failed"}, "submission-1__a+b", BY_ANN),
        ("patch_dag_run", {"state": "success"}, "submission-1__a+b", MESSAGE),
        ("patch_dag_run", {"state": "failed"}, "another", MESSAGE),
    ],
)
def test_a_run_that_a_person_stopped_says_so(look, event: str, body: dict, run_id: str, message: str):
    entry = Log(event=event, owner="ann", dag_id="dmls.lab.iris", run_id=run_id, extra=json.dumps(body))
    entry.dttm = datetime(2026, 11, 9, 7, 5, tzinfo=UTC)
    look.session.add(entry)
    look.end("failed")
    look(1)
    assert look(30) == ("failed", message)


@pytest.mark.parametrize("person", ["ann", ""])
def test_who_stopped_a_training_follows(look, person: str):
    if person:
        extra = json.dumps({"state": "failed"})
        run_id, at = "submission-1__a+b", datetime(2026, 11, 9, 7, 5, tzinfo=UTC)
        entry = Log(event="patch_dag_run", owner=person, dag_id="dmls.lab.iris", run_id=run_id, extra=extra)
        entry.dttm = at
        look.session.add(entry)
    look.end("failed")
    look(1)
    record_key = read_status(look.store, "lab", "iris").run_key
    update_run_status(look.store, "lab", "iris", record_key, "failed", INTERRUPTED, links=LINKS)
    assert look(30) == ("failed", BY_ANN if person else INTERRUPTED)


def test_a_task_that_reported_its_failure_has_the_last_word(look):
    look.end("failed")
    look(1)
    record_key = read_status(look.store, "lab", "iris").run_key
    update_run_status(look.store, "lab", "iris", record_key, "failed", "out of memory", links=LINKS)
    assert look(30) == ("failed", "out of memory")


@pytest.mark.parametrize("state", ["success", "running"])
def test_other_ends_change_nothing(look, state):
    look.end("failed")
    look(1)
    look.end(state)
    assert look(30) == ("running", "searching")
    assert look(30) == ("running", "searching")


def test_the_correction_is_repeated_while_the_store_is_full(look, monkeypatch):
    look.end("failed")
    look(1)

    def full(*_: Any, **__: Any) -> None:
        raise StoreError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(unreported_failures, "update_run_status", full)
        assert look(30) == ("running", "searching")
    assert look(1) == ("failed", MESSAGE)


def test_runs_of_other_dags_than_jobs_hold_up_nothing(look: Look):
    add_dag(look.session, "dmls.intake")
    support_run(look.session, "dmls.intake", "intake", "running")
    look()
    look.end("failed")
    look()
    assert look(21) == ("failed", MESSAGE)
