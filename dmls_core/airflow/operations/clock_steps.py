"""Correct dates in Airflow's database that lie in the future since a clock was set back.

Airflow creates and continues no run that is dated in the future, retries no task that failed then, stores no
new version of a DAG that it stored then, and takes a dead process whose last heartbeat lies there for alive:
all of them would wait until the clock catches up.

A look is a few queries, and changes nothing unless a date lies in the future by more than ``TOLERANCE``.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from airflow.jobs.job import Job, JobState
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunType
from sqlalchemy import ColumnElement, and_, func, or_, select, update

from dmls_core.airflow.database import DAG_PREFIX, OURS_RUN, Session

log = logging.getLogger(__name__)

TOLERANCE = timedelta(minutes=1)
"""Clocks of several machines differ by less."""

STEP = timedelta(microseconds=1)

STORED_BEFORE = timedelta(hours=1)
"""More than Airflow's ``min_serialized_dag_update_interval``, within which it stores no DAG again."""

AUTOMATED = (DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB)
"""Types of runs from whose logical dates Airflow computes a DAG's next run."""

CREATED = (DagRunType.SCHEDULED, DagRunType.ASSET_TRIGGERED)
"""Types of runs that the scheduler creates, so that no user has chosen their dates."""

OF_JOB = DagModel.dag_id.like(f"{DAG_PREFIX}%.%")
"""The other DAGs, such as the monitor's, have intervals without length for each time of their schedule."""

UNFINISHED = (DagRunState.QUEUED, DagRunState.RUNNING)


def correct_dates(session: Session, now: datetime) -> int:
    """Move what waits for a clock that was set back to ``now``; return how many rows were corrected.

    Runs that a user triggers or backfills keep their dates: they may lie in the future on purpose.
    """
    limit = now + TOLERANCE
    corrected = _start_admitted(session, now, limit)
    corrected += _continue_runs(session, now, limit)
    corrected += _retry_tasks(session, now, limit)
    corrected += _expire_processes(session, now, limit)
    corrected += _store_dags(session, now, limit)
    if corrected:
        log.warning("a clock was set back: %s rows of Airflow's database were dated in the future", corrected)
    return corrected


def _start_admitted(session: Session, now: datetime, limit: datetime) -> int:
    """Have Airflow create the runs of accepted versions, whose intervals have no length, at once."""
    waiting = (
        OF_JOB,
        DagModel.next_dagrun_create_after > limit,
        DagModel.next_dagrun_data_interval_start == DagModel.next_dagrun_data_interval_end,
    )
    found = list(session.scalars(select(DagModel.dag_id).where(*waiting)))
    if found:
        # A DAG that is parsed meanwhile may wait for something else by now.
        _update(session, DagModel, {"next_dagrun_create_after": now}, DagModel.dag_id.in_(found), *waiting)
    return len(found)


def _continue_runs(session: Session, now: datetime, limit: datetime) -> int:
    query = (
        select(DagRun.dag_id)
        .where(
            OURS_RUN,
            DagRun.run_type.in_(CREATED),
            DagRun.state.in_(UNFINISHED),
            or_(DagRun.run_after > limit, DagRun.logical_date > limit),
        )
        .distinct()
    )
    waiting = list(session.scalars(query))
    if not waiting:
        return 0
    # Scheduler and DAG processor hold these locks while they compute a DAG's next run from its last one. They
    # then see all of a DAG's runs as they were, or all as they are now. Who is locked gets the next look.
    locked = (
        select(DagModel.dag_id, DagModel.next_dagrun)
        .where(DagModel.dag_id.in_(waiting))
        .with_for_update(of=DagModel, skip_locked=True)
    )
    return sum(_move_runs(session, dag_id, upcoming, now) for dag_id, upcoming in session.execute(locked))


def _move_runs(session: Session, dag_id: str, upcoming: datetime | None, now: datetime) -> int:
    """Date the automated runs of a DAG that lie in the future just before ``now``, in their order.

    The finished ones too: Airflow computes the next run from the run with the latest logical date, and a
    version would run twice if that were not its newest. Their data intervals stay as they are.
    """
    of_dag = DagRun.dag_id == dag_id
    ahead = select(DagRun.id, DagRun.logical_date).where(
        of_dag, DagRun.run_type.in_(AUTOMATED), DagRun.logical_date > now
    )
    runs = session.execute(ahead.order_by(DagRun.logical_date)).all()
    start = now - len(runs) * STEP
    latest = session.scalar(select(func.max(DagRun.logical_date)).where(of_dag, DagRun.logical_date <= now))
    if latest is not None and latest > start:
        return 0  # no date is free: there is one at the next look
    if upcoming in {run.logical_date for run in runs}:
        return 0  # Airflow is about to see by this date that the run exists
    for number, run in enumerate(runs, start=1):
        _update(session, DagRun, {"logical_date": start + number * STEP}, DagRun.id == run.id)
    due = of_dag, DagRun.run_type.in_(CREATED), DagRun.state.in_(UNFINISHED)
    _update(session, DagRun, {"run_after": now}, *due, DagRun.run_after > now)
    return max(len(runs), 1)


def _retry_tasks(session: Session, now: datetime, limit: datetime) -> int:
    """Count the pause before a retry from now, and have heartbeats of killed tasks expire."""
    retried = and_(TaskInstance.state == TaskInstanceState.UP_FOR_RETRY, TaskInstance.end_date > limit)
    running = and_(
        TaskInstance.state.in_((TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING)),
        TaskInstance.last_heartbeat_at > limit,
    )
    ours = TaskInstance.dag_id.startswith(DAG_PREFIX, autoescape=True)
    found = list(session.scalars(select(TaskInstance.id).where(ours, or_(retried, running))))
    if found:
        these = TaskInstance.id.in_(found)
        _update(session, TaskInstance, {"end_date": now}, these, retried)
        _update(session, TaskInstance, {"last_heartbeat_at": now}, these, running)
    return len(found)


def _expire_processes(session: Session, now: datetime, limit: datetime) -> int:
    """Have heartbeats of Airflow's processes expire; those that are alive write a new one in seconds."""
    beating = Job.state == JobState.RUNNING, Job.latest_heartbeat > limit
    found = list(session.scalars(select(Job.id).where(*beating)))
    if found:
        _update(session, Job, {"latest_heartbeat": now}, Job.id.in_(found), *beating)
    return len(found)


def _store_dags(session: Session, now: datetime, limit: datetime) -> int:
    """Have Airflow store new versions of DAGs that it takes for just stored."""
    stored = SerializedDagModel.dag_id.startswith(DAG_PREFIX, autoescape=True)
    ahead = stored, SerializedDagModel.last_updated > limit
    found = list(session.scalars(select(SerializedDagModel.id).where(*ahead)))
    if found:
        before = now - STORED_BEFORE
        _update(session, SerializedDagModel, {"last_updated": before}, SerializedDagModel.id.in_(found))
    return len(found)


def _update(
    session: Session, model: type[object], values: dict[str, datetime], *where: ColumnElement[bool]
) -> None:
    statement = update(model).where(*where).values(values)
    session.execute(statement, execution_options={"synchronize_session": False})
