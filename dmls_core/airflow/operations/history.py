"""Delete old finished runs of DMLS's DAGs from Airflow's database, which keeps them for ever otherwise.

``airflow db clean`` keeps one run of a DAG, the newest that no user triggered. If a retraining is newer than
the run of an accepted version, Airflow forgets that the version was started, and starts it again. Here both
stay: a DAG's newest run, and the one from which Airflow computes the next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import delete, func, select

from dmls_core.airflow.database import DAG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Delete, Select

FINISHED = ("success", "failed")

AUTOMATED = ("scheduled", "backfill")
"""Types of runs from which Airflow computes a DAG's next run."""

BATCH = 500
"""Runs or events of one transaction, short enough for the scheduler to work in between."""

PAUSE_SECONDS = 0.05
"""Pause between two transactions: SQLite has one writer at a time."""


@dataclass(frozen=True, slots=True)
class OldHistory:
    """What is older than ``before``: finished runs of ``dags`` DAGs with their tasks, and audit events."""

    before: datetime
    runs: int
    dags: int
    events: int


def count_old(days: int) -> OldHistory:
    """Return how many runs and audit events are older than ``days`` days and not needed any more."""
    before = datetime.now(UTC) - timedelta(days=days)
    with create_session() as session:
        runs = session.scalar(select(func.count()).select_from(_old_runs(before).subquery())) or 0
        dags = select(func.count(func.distinct(DagRun.dag_id))).where(DagRun.id.in_(_old_runs(before)))
        events = session.scalar(select(func.count()).select_from(Log).where(*_old_events(before))) or 0
        return OldHistory(before, runs, session.scalar(dags) or 0, events)


def delete_old(before: datetime) -> None:
    """Delete the runs and audit events that ``count_old`` counts; the database deletes the runs' tasks."""
    with create_session() as session:
        runs = list(session.scalars(_old_runs(before)))
        events = list(session.scalars(select(Log.id).where(*_old_events(before))))
    # A user may have cleared a run meanwhile.
    statement = delete(DagRun).where(DagRun.state.in_(FINISHED), DagRun.end_date < before)
    for batch in _batched(runs):
        _commit(statement.where(DagRun.id.in_(batch)))
    for batch in _batched(events):
        _commit(delete(Log).where(Log.id.in_(batch)))


def _batched(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield batches of rows, with a pause after each."""
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
        time.sleep(PAUSE_SECONDS)


def _commit(statement: Delete) -> None:
    with create_session() as session:
        session.execute(statement, execution_options={"synchronize_session": False})


def _old_runs(before: datetime) -> Select[int]:
    """Return a query of the ids of old finished runs, without the two of each DAG that stay."""
    ours = DagRun.dag_id.startswith(DAG_PREFIX, autoescape=True)
    newest = select(func.max(DagRun.id)).where(ours).group_by(DagRun.dag_id)
    last = (
        select(DagRun.dag_id, func.max(DagRun.logical_date).label("date"))
        .where(ours, DagRun.run_type.in_(AUTOMATED))
        .group_by(DagRun.dag_id)
        .subquery()
    )
    return (
        select(DagRun.id)
        .outerjoin(last, (last.c.dag_id == DagRun.dag_id) & (last.c.date == DagRun.logical_date))
        .where(
            ours,
            DagRun.state.in_(FINISHED),
            DagRun.end_date < before,
            DagRun.id.not_in(newest),
            last.c.dag_id.is_(None),
        )
    )


def _old_events(before: datetime) -> tuple[ColumnElement[bool], ...]:
    return Log.dag_id.startswith(DAG_PREFIX, autoescape=True), Log.dttm < before
