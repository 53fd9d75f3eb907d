"""Who trains now and who waits for it, in the order in which Airflow's scheduler fills its pools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from dmls_core.airflow.task_id import TaskId

PREFIX = "dmls."

WAITING = ("scheduled", "queued")
HOLDING = ("queued", "running")
"""States of a task that occupies its pool's slot."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A run that waits.

    Attributes:
        place: in the queue before its pool, from 1; ``None`` where it does not stand in one yet.
        pool: whose slot it waits for; empty likewise.
        reason: why it waits.
    """

    place: int | None
    pool: str
    reason: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot of a pool that a trainer holds until it ends: a GPU of ``dmls_gpu``, or CPUs.

    Attributes:
        job: ``<team>/<name>``.
        dag_id: of the job.
        run_id: of the run.
        trainer: which of the run's trainers, from 1.
        pool: whose slot it is.
        since: when the trainer was started.
        host: the Airflow worker that minds it.
    """

    job: str
    dag_id: str
    run_id: str
    trainer: int
    pool: str
    since: datetime | None
    host: str


def job_of(dag_id: str) -> str:
    """Return ``<team>/<name>`` of a job's DAG."""
    return dag_id.removeprefix(PREFIX).replace(".", "/", 1)


def read_leases(session: Session, dag_id: str = "") -> list[Lease]:
    """Return the trainers at work, the longest at work first; only those of ``dag_id`` where it is given."""
    columns = (
        TaskInstance.dag_id,
        TaskInstance.run_id,
        TaskInstance.map_index,
        TaskInstance.pool,
        TaskInstance.start_date,
        TaskInstance.hostname,
    )
    query = select(*columns).where(*_searches(["running"])).order_by(TaskInstance.start_date)
    if dag_id:
        query = query.where(TaskInstance.dag_id == dag_id)
    return [
        Lease(job_of(of), of, run_id, max(index, 0) + 1, pool, since, host or "")
        for of, run_id, index, pool, since, host in session.execute(query)
    ]


def read_waits(session: Session) -> dict[str, Wait]:
    """Return why the jobs wait whose runs do, by DAG."""
    runs = (
        select(DagRun.dag_id, DagRun.state, DagModel.is_paused)
        .join(DagModel, DagModel.dag_id == DagRun.dag_id)
        .where(DagRun.state.in_(["queued", "running"]), DagRun.dag_id.startswith(PREFIX, autoescape=True))
    )
    waits = wait_for_runs((dag_id, str(state), paused) for dag_id, state, paused in session.execute(runs))
    pools = {str(name): int(slots) for name, slots in session.execute(select(Pool.pool, Pool.slots))}
    # As Airflow's scheduler orders them.
    query = (
        select(TaskInstance.dag_id, TaskInstance.pool, TaskInstance.state)
        .where(*_searches({*WAITING, *HOLDING}))
        .join(TaskInstance.dag_run)
        .order_by(TaskInstance.priority_weight.desc(), DagRun.logical_date, TaskInstance.map_index)
    )
    tasks = [(dag_id, pool, str(state)) for dag_id, pool, state in session.execute(query)]
    return waits | queue_up(tasks, pools)


def queue_up(tasks: Iterable[tuple[str, str, str]], pools: dict[str, int]) -> dict[str, Wait]:
    """Return the places in the queues before the pools, by DAG.

    Args:
        tasks: (DAG, pool, state) of each search that waits or is at work, in the scheduler's order.
        pools: their slots.
    """
    tasks = list(tasks)
    held = Counter(pool for _, pool, state in tasks if state in HOLDING)
    # Who has a slot already starts before all that have none.
    waiting = sorted((task for task in tasks if task[2] in WAITING), key=lambda task: task[2] != "queued")
    found: dict[str, Wait] = {}
    places: dict[str, int] = defaultdict(int)
    for dag_id, pool, state in waiting:
        if dag_id not in found:
            places[pool] += 1
            reason = pool_reason(pool, pools.get(pool), held[pool], has_slot=state == "queued")
            found[dag_id] = Wait(places[pool], pool, reason)
    return found


def pool_reason(pool: str, slots: int | None, held: int, *, has_slot: bool = False) -> str:
    """Say why a search waits.

    Args:
        pool: whose slot it needs.
        slots: of the pool; ``None``: there is no such pool.
        held: slots that are occupied.
        has_slot: whether one of them is its own.
    """
    if has_slot:
        return "it has its slot, and starts as soon as an Airflow worker is free"
    if slots is None:
        return f"the pool {pool} does not exist: the platform team must create it"
    if slots == 0:
        return f"the pool {pool} has no slots on this platform"
    if held >= slots:
        return (
            f"all {slots} slots of the pool {pool} are in use"
            if slots > 1
            else f"the one slot of {pool} is in use"
        )
    return "starts in a moment"


def wait_for_runs(runs: Iterable[tuple[str, str, bool]]) -> dict[str, Wait]:
    """Return why whole runs wait for Airflow to begin them, by DAG.

    Args:
        runs: (DAG, state, whether the DAG is paused) of each run that is ``queued`` or ``running``.
    """
    runs = list(runs)
    going = {dag_id for dag_id, state, _ in runs if state == "running"}
    return {
        dag_id: Wait(None, "", _run_reason(paused=paused, behind=dag_id in going))
        for dag_id, state, paused in runs
        if state == "queued"
    }


def _run_reason(*, paused: bool, behind: bool) -> str:
    if paused:
        return "the job is paused: its run begins once the job is resumed"
    return "the job's run before this one is not over yet" if behind else "begins in a moment"


def _searches(states: Iterable[str]) -> tuple[ColumnElement[bool], ...]:
    return (
        TaskInstance.task_id == TaskId.SEARCH.value,
        TaskInstance.state.in_(list(states)),
        TaskInstance.dag_id.startswith(PREFIX, autoescape=True),
    )
