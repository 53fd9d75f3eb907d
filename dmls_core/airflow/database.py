"""All reads of Airflow's metadata database, which DMLS does not write: DAGs, runs, tasks, pools, health."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.models.asset import AssetModel, DagScheduleAssetReference
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.log import Log
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.models.variable import Variable
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from airflow.utils.types import DagRunType
from sqlalchemy import column, func, or_, select, table
from sqlalchemy.orm import Session

from dmls_core.airflow.settings import bundle_entries
from dmls_core.airflow.task_id import TaskId
from dmls_core.store import layout

__all__ = ["DagRun", "Session", "SessionDep", "TaskInstance", "create_session"]
"""Of Airflow and SQLAlchemy, for those who call this module."""

DAG_PREFIX = "dmls."
POOL_PREFIX = "dmls_"
OURS = DagModel.dag_id.startswith(DAG_PREFIX, autoescape=True)
OURS_RUN = DagRun.dag_id.startswith(DAG_PREFIX, autoescape=True)


class DagState(NamedTuple):
    """Airflow's state of a job's DAG; ``schedule`` is in words, ``next_date`` the next run's logical date."""

    paused: bool
    next_run: datetime | None
    schedule: str = ""
    stale: bool = False
    next_date: datetime | None = None


class XCom(NamedTuple):
    """A value that a task pushed."""

    dag_id: str
    run_id: str
    task_id: str
    key: str
    value: Any
    timestamp: datetime


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An entry of Airflow's audit log; ``extra`` is JSON."""

    at: datetime | None
    event: str
    who: str | None
    run_id: str | None
    extra: str | None


def dag_state(session: Session, dag_id: str) -> DagState | None:
    """Return the state of a DAG, or ``None`` if Airflow does not have it."""
    columns = (
        DagModel.is_paused,
        DagModel.next_dagrun_create_after,
        DagModel.timetable_description,
        DagModel.is_stale,
    )
    row = session.execute(select(*columns).where(DagModel.dag_id == dag_id)).one_or_none()
    return DagState(row[0], row[1], row[2] or "", row[3]) if row else None


def dag_states(session: Session) -> dict[str, DagState]:
    """Return whether each job's DAG is paused, and when and for which date it runs next, by DAG ID."""
    columns = DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after, DagModel.next_dagrun
    rows = session.execute(select(*columns).where(OURS))
    return {
        dag_id: DagState(paused, next_run, next_date=next_date)
        for dag_id, paused, next_run, next_date in rows
    }


def dag_files(session: Session, bundle: str) -> dict[str, str]:
    """Return the file, relative to its bundle, that Airflow has each job's DAG from."""
    columns = DagModel.dag_id, DagModel.relative_fileloc
    mine = select(*columns).where(OURS, DagModel.bundle_name == bundle, ~DagModel.is_stale)
    return {dag_id: file or "" for dag_id, file in session.execute(mine)}


def unwatched_dags(session: Session) -> dict[str, str]:
    """Return the DAGs of the bundle that wait for events which no watcher reports, with their files.

    A paused DAG has no watcher.
    """
    query = (
        select(DagModel.dag_id, DagModel.relative_fileloc)
        .join(DagScheduleAssetReference, DagScheduleAssetReference.dag_id == DagModel.dag_id)
        .join(AssetModel, AssetModel.id == DagScheduleAssetReference.asset_id)
        .where(
            DagModel.bundle_name == _bundle_name(),
            ~DagModel.is_stale,
            ~DagModel.is_paused,
            ~AssetModel.watchers.any(),
        )
    )
    return {dag_id: file or "" for dag_id, file in session.execute(query)}


def team_dags(session: Session, team: str) -> set[str]:
    """Return the IDs of the DAGs of a team's jobs."""
    of_team = DagModel.dag_id.startswith(layout.team_prefix(team), autoescape=True)
    return set(session.scalars(select(DagModel.dag_id).where(of_team)))


def fab_roles(session: Session) -> set[str]:
    """Return the names of the roles of Airflow's FAB auth manager."""
    return set(session.scalars(select(column("name")).select_from(table("ab_role"))))


def team_dags_pattern(team: str) -> str:
    """Return what stands for the DAGs of all jobs of a team, those to come included, in checks of access."""
    return f"{layout.team_prefix(team)}*"


def dag_runs(session: Session, dag_id: str, *, limit: int, run_id: str = "") -> list[DagRun]:
    """Return the latest runs of a DAG, newest first; only ``run_id`` if it is given."""
    query = select(DagRun).where(DagRun.dag_id == dag_id)
    if run_id:
        query = query.where(DagRun.run_id == run_id)
    query = query.order_by(DagRun.run_after.desc(), DagRun.id.desc()).limit(limit)
    return list(session.scalars(query))


def existing_runs(session: Session, run_ids: Collection[str]) -> set[tuple[str, str]]:
    """Return (DAG ID, run ID) of the runs of jobs that Airflow has among ``run_ids``."""
    query = select(DagRun.dag_id, DagRun.run_id).where(OURS_RUN, DagRun.run_id.in_(list(run_ids)))
    return {(dag_id, run_id) for dag_id, run_id in session.execute(query)}


def latest_interval_ends(session: Session, dag_ids: Collection[str]) -> dict[str, datetime]:
    """Return when the last data interval ends that the scheduler or a backfill has created a run of."""
    query = (
        select(DagRun.dag_id, func.max(DagRun.data_interval_end))
        .where(
            DagRun.dag_id.in_(list(dag_ids)),
            DagRun.run_type.in_((DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB)),
        )
        .group_by(DagRun.dag_id)
    )
    return {dag_id: end for dag_id, end in session.execute(query) if end}


def unfinished_runs(session: Session) -> list[tuple[str, str, bool]]:
    """Return (DAG ID, state, whether the DAG is paused) of each queued or running run of a job."""
    query = (
        select(DagRun.dag_id, DagRun.state, DagModel.is_paused)
        .join(DagModel, DagModel.dag_id == DagRun.dag_id)
        .where(DagRun.state.in_(["queued", "running"]), OURS)
    )
    return [(dag_id, str(state), paused) for dag_id, state, paused in session.execute(query)]


def dags_at_work(session: Session) -> set[str]:
    """Return the jobs' DAGs with a task that a worker, the triggerer or a person has."""
    states = ("queued", "running", "deferred", "awaiting_input")
    query = select(TaskInstance.dag_id).where(
        TaskInstance.state.in_(states), TaskInstance.dag_id.startswith(DAG_PREFIX, autoescape=True)
    )
    return set(session.scalars(query))


def task_instances(
    session: Session,
    *,
    dag_id: str = "",
    run_id: str = "",
    task_id: str = "",
    states: Collection[str] = (),
    except_triggers: Collection[str] = (),
) -> list[TaskInstance]:
    """Return task instances of jobs in order of their start; empty arguments do not filter.

    ``except_triggers`` are class paths of triggers: tasks that wait for them are left out.
    """
    query = select(TaskInstance).where(
        TaskInstance.dag_id == dag_id
        if dag_id
        else TaskInstance.dag_id.startswith(DAG_PREFIX, autoescape=True)
    )
    if run_id:
        query = query.where(TaskInstance.run_id == run_id)
    if task_id:
        query = query.where(TaskInstance.task_id == task_id)
    if states:
        query = query.where(TaskInstance.state.in_(list(states)))
    if except_triggers:
        query = query.outerjoin(Trigger, Trigger.id == TaskInstance.trigger_id)
        query = query.where(func.coalesce(Trigger.classpath, "").not_in(except_triggers))
    return list(session.scalars(query.order_by(TaskInstance.start_date)))


class PooledTask(NamedTuple):
    """A task instance in a pool, with its start if it has started, and its trigger's class if deferred.

    ``helper`` is whether its run has a trainer without it, ``paused`` whether its DAG is. ``method``
    continues a task that was deferred.
    """

    dag_id: str
    pool: str
    state: str
    started: datetime | None = None
    trigger: str = ""
    helper: bool = False
    paused: bool = False
    method: str = ""


def tasks_by_priority(session: Session, task_id: str, states: Iterable[str]) -> list[PooledTask]:
    """Return task instances in the order in which Airflow's scheduler takes them."""
    columns = TaskInstance.dag_id, TaskInstance.pool, TaskInstance.state, TaskInstance.start_date
    others = Trigger.classpath, TaskInstance.map_index > 0, DagModel.is_paused, TaskInstance.next_method
    query = (
        select(*columns, *others)
        .outerjoin(Trigger, Trigger.id == TaskInstance.trigger_id)
        .join(DagModel, DagModel.dag_id == TaskInstance.dag_id)
        .where(
            TaskInstance.task_id == task_id,
            TaskInstance.state.in_(list(states)),
            TaskInstance.dag_id.startswith(DAG_PREFIX, autoescape=True),
        )
        .join(TaskInstance.dag_run)
        .order_by(TaskInstance.priority_weight.desc(), DagRun.logical_date, TaskInstance.map_index)
    )
    return [
        PooledTask(dag_id, pool, str(state), at, trigger or "", helper, paused, method or "")
        for dag_id, pool, state, at, trigger, helper, paused, method in session.execute(query)
    ]


def last_durations(
    session: Session, task_id: str, dag_ids: Iterable[str], count: int
) -> dict[str, list[float]]:
    """Return the seconds that the last successful instances of a task took, at most ``count`` of each DAG."""
    age = func.row_number().over(partition_by=TaskInstance.dag_id, order_by=TaskInstance.end_date.desc())
    ranked = (
        select(TaskInstance.dag_id, TaskInstance.start_date, TaskInstance.end_date, age.label("age"))
        .where(
            TaskInstance.task_id == task_id,
            TaskInstance.dag_id.in_(list(dag_ids)),
            TaskInstance.state == "success",
            TaskInstance.map_index <= 0,
        )
        .subquery()
    )
    rows = session.execute(select(ranked).where(ranked.c.age <= count).order_by(ranked.c.age))
    durations: dict[str, list[float]] = {}
    for row in rows:
        if row.start_date and row.end_date:
            durations.setdefault(row.dag_id, []).append((row.end_date - row.start_date).total_seconds())
    return durations


def pool_slots(session: Session, *, ours: bool = False) -> dict[str, int]:
    """Return the number of slots by pool; only those of DMLS if ``ours``."""
    query = select(Pool.pool, Pool.slots).order_by(Pool.pool)
    if ours:
        query = query.where(Pool.pool.startswith(POOL_PREFIX, autoescape=True))
    return {str(name): int(slots) for name, slots in session.execute(query)}


def task_counts(session: Session) -> dict[tuple[str, str], int]:
    """Return how many task instances of DMLS's pools run or wait, by pool and state."""
    query = (
        select(TaskInstance.pool, TaskInstance.state, func.count())
        .where(TaskInstance.pool.startswith(POOL_PREFIX, autoescape=True))
        .where(TaskInstance.state.in_(("running", "deferred", "queued", "scheduled")))
        .group_by(TaskInstance.pool, TaskInstance.state)
    )
    return {(pool, str(state)): count for pool, state, count in session.execute(query)}


_XCOM = (
    XComModel.dag_id,
    XComModel.run_id,
    XComModel.task_id,
    XComModel.key,
    XComModel.value,
    XComModel.timestamp,
)


def return_values(session: Session, task_ids: Iterable[str], since: datetime | None) -> list[XCom]:
    """Return the results of tasks of all jobs, oldest first; only those later than ``since`` if given."""
    query = (
        select(*_XCOM)
        .where(
            XComModel.key == "return_value",
            XComModel.task_id.in_(list(task_ids)),
            XComModel.dag_id.startswith(DAG_PREFIX, autoescape=True),
        )
        .order_by(XComModel.timestamp)
    )
    if since:
        query = query.where(XComModel.timestamp > since)
    return [XCom(*row) for row in session.execute(query)]


def xcoms_of_runs(
    session: Session, dag_id: str, run_ids: list[str], task_ids: Iterable[str], keys: Iterable[str]
) -> list[XCom]:
    """Return the values that tasks of some runs pushed under ``keys``."""
    query = select(*_XCOM).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id.in_(run_ids),
        XComModel.task_id.in_(list(task_ids)),
        XComModel.key.in_(list(keys)),
    )
    return [XCom(*row) for row in session.execute(query)]


def audit_events(session: Session, dag_id: str, events: Iterable[str], limit: int) -> list[LogEvent]:
    """Return the latest entries of the audit log about a DAG, newest first."""
    query = select(Log).where(Log.dag_id == dag_id, Log.event.in_(list(events)))
    rows = session.scalars(query.order_by(Log.id.desc()).limit(limit))
    return [LogEvent(row.dttm, row.event, row.owner, row.run_id, row.extra) for row in rows]


def unanswered_approvals(session: Session) -> set[str]:
    """Return the DAGs of which a run waits for an approval."""
    query = (
        select(TaskInstance.dag_id)
        .join(HITLDetail, HITLDetail.ti_id == TaskInstance.id)
        .where(
            TaskInstance.task_id == TaskId.APPROVE,
            TaskInstance.state == TaskInstanceState.AWAITING_INPUT,
            HITLDetail.responded_at.is_(None),
        )
    )
    return set(session.scalars(query))


def runs_ahead(session: Session, limit: datetime) -> dict[str, datetime]:
    """Return the DAGs with unfinished runs that are dated after ``limit``, and the latest date of each.

    Airflow continues such a run when its date has come. Runs that a user triggers or backfills do not count:
    their dates may lie in the future on purpose.
    """
    query = select(DagRun.dag_id, DagRun.run_after, DagRun.logical_date).where(
        OURS_RUN,
        DagRun.run_type.in_((DagRunType.SCHEDULED, DagRunType.ASSET_TRIGGERED)),
        DagRun.state.in_(("queued", "running")),
        or_(DagRun.run_after > limit, DagRun.logical_date > limit),
    )
    ahead: dict[str, datetime] = {}
    for dag_id, *dates in session.execute(query):
        ahead[dag_id] = max([ahead.get(dag_id, limit), *(date for date in dates if date)])
    return ahead


def run_totals(session: Session) -> list[tuple[str, str, int, float]]:
    """Return (DAG ID, state, number, total seconds) of the runs of jobs, by DAG and state."""
    query = (
        select(DagRun.dag_id, DagRun.state, func.count(), func.sum(DagRun.duration))
        .where(DagRun.dag_id.like(f"{DAG_PREFIX}%.%"))
        .group_by(DagRun.dag_id, DagRun.state)
        .order_by(DagRun.dag_id, DagRun.state)
    )
    return [
        (dag_id, str(state), number, float(seconds or 0))
        for dag_id, state, number, seconds in session.execute(query)
    ]


def waiting_searches(session: Session, team: str) -> tuple[int, int | None]:
    """Return the number of a team's waiting runs without backfills, and the smallest of their weights."""
    query = select(func.count(), func.min(TaskInstance.priority_weight)).where(
        or_(TaskInstance.state.is_(None), TaskInstance.state.in_(("scheduled", "queued"))),
        TaskInstance.task_id == TaskId.SEARCH.value,
        TaskInstance.map_index <= 0,
        ~TaskInstance.run_id.startswith("backfill__", autoescape=True),
        TaskInstance.dag_id.startswith(layout.team_prefix(team), autoescape=True),
    )
    count, smallest = session.execute(query).one()
    return count, smallest


def connection_ids(session: Session) -> set[str]:
    """Return the ids of the connections in the database."""
    return set(session.scalars(select(Connection.conn_id)))


def variables(session: Session, *, key: str = "", prefix: str = "") -> dict[str, str]:
    """Return the variables with ``key``, or whose keys begin with ``prefix``; none of Airflow's teams."""
    named = Variable.key == key if key else Variable.key.startswith(prefix, autoescape=True)
    query = select(Variable).where(named, Variable.team_name.is_(None))
    return {variable.key: variable.val or "" for variable in session.scalars(query)}


def airflow_team(dag_id: str) -> str | None:
    """Return the team of Airflow that a DAG belongs to, by its bundle."""
    team: str | None = DagModel.get_team_name(dag_id)
    return team


def bundle_version(session: Session) -> str | None:
    """Return the version of the registry that Airflow's DAG processor has loaded."""
    query = select(DagBundleModel.version).where(DagBundleModel.name == _bundle_name())
    version: str | None = session.scalar(query)
    return version


def _bundle_name() -> str:
    """Return the name of the bundle entry without a team."""
    return next((str(entry["name"]) for entry in bundle_entries()), "")


def airflow_health() -> dict[str, str]:
    """Return the status of each of Airflow's components that reports one."""
    from airflow.api.common.airflow_health import get_airflow_health

    health: dict[str, Any] = get_airflow_health()
    return {name: str(entry["status"]) for name, entry in health.items() if entry.get("status")}
