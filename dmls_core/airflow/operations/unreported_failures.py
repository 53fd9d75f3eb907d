"""Find runs whose status still says that they run, although they failed, or not who stopped them.

A failing task writes the status once. If the store refuses that, or the process is killed, it stays as it is.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from urllib.parse import unquote

from dmls_core.airflow import database
from dmls_core.airflow.database import Session
from dmls_core.airflow.runs.status import INTERRUPTED
from dmls_core.errors import StoreError
from dmls_core.intake import read_status, update_run_status
from dmls_core.intake.status import Status
from dmls_core.store import Store, layout

log = logging.getLogger(__name__)

_MAX_EVENTS = 50
"""Entries of the audit log about a DAG that are read."""

_GRACE_SECONDS = 20.0
"""Time for a task to report its failure after its run has ended."""

MESSAGE = "The run failed, and its tasks could not write why. Their logs are in Airflow"

STOPPED = "{} stopped the run in Airflow{}. To go on, clear its tasks that did not succeed"

_MARKING = ("patch_dag_run", "patch_task_instance", "patch_task_group_instances")
"""Events of Airflow's audit log for runs and tasks that a person gives another state."""


@dataclass
class UnreportedFailures:
    """Jobs whose runs have ended since the last look, by a clock that cannot be set."""

    _running: set[str] = field(default_factory=set)
    _ended: dict[str, float] = field(default_factory=dict)

    def observe(self, session: Session) -> None:
        """Note whose runs have ended; it needs no store."""
        running = {dag_id for dag_id, _, _ in database.unfinished_runs(session) if layout.is_of_job(dag_id)}
        self._ended |= dict.fromkeys(self._running - running, time.monotonic())
        self._running = running

    def correct(self, session: Session, store: Store) -> None:
        """Write into the status of each job whose run failed that it did. Repeat what failed before."""
        due = time.monotonic() - _GRACE_SECONDS
        for dag_id in [dag_id for dag_id, at in self._ended.items() if at <= due]:
            try:
                if dag_id not in self._running:
                    self._correct(session, store, dag_id)
            except StoreError as error:
                log.warning("cannot correct the status of %s: %s", dag_id, error)
            else:
                del self._ended[dag_id]

    def _correct(self, session: Session, store: Store, dag_id: str) -> None:
        team, job = layout.parse_dag_id(dag_id)
        status = read_status(store, team, job)
        if status is None or not status.run_key:
            return
        interrupted = (status.state, status.message) == ("failed", INTERRUPTED)
        if status.state != "running" and not interrupted:
            return
        runs = database.dag_runs(session, dag_id, limit=1, run_id=_run_id(status))
        if runs and runs[0].state == "failed":
            usual = status.message if interrupted else MESSAGE
            message = _describe_stop(session, dag_id, runs[0].run_id) or usual
            update_run_status(store, team, job, status.run_key, "failed", message, run=status.run)


def _describe_stop(session: Session, dag_id: str, run_id: str) -> str:
    """Say who last marked a run, or a task of it, as failed, and when; an empty text if no one has."""
    for event in database.audit_events(session, dag_id, _MARKING, _MAX_EVENTS):
        with suppress(ValueError):
            body = json.loads(event.extra or "{}")
            if event.run_id == run_id and "failed" in (body.get("state"), body.get("new_state")):
                at = f" on {event.at.astimezone(UTC):%-d %B %Y at %H:%M} UTC" if event.at else ""
                return STOPPED.format(event.who or "Someone", at)
    return ""


def _run_id(status: Status) -> str:
    """Return the ID of the run that a status describes, from its link."""
    return unquote(status.links.get("airflow", "").rpartition("/runs/")[2])
