"""Running trainers and waiting runs, in the order in which Airflow's scheduler fills pools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dmls_core.airflow import metadata
from dmls_core.airflow.metadata import Session
from dmls_core.airflow.task_id import TaskId

PREFIX = "dmls."

WAITING = ("scheduled", "queued")
OCCUPYING = ("queued", "running")
"""States of a task that occupies a slot of its pool."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A waiting run; ``position`` in the queue of ``pool`` counts from 1, ``None`` if unqueued."""

    position: int | None
    pool: str
    reason: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot of a pool that a trainer holds until it ends: a GPU of ``dmls_gpu``, or CPUs.

    ``job`` is ``<team>/<name>``, ``trainer`` its number in the run from 1, ``host`` the Airflow worker.
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
    """Return the running trainers, longest first; only those of ``dag_id`` if it is given."""
    return [
        Lease(
            job_of(task.dag_id),
            task.dag_id,
            task.run_id,
            max(task.map_index, 0) + 1,
            task.pool,
            task.start_date,
            task.hostname or "",
        )
        for task in metadata.task_instances(
            session, dag_id=dag_id, task_id=TaskId.SEARCH.value, states=["running"]
        )
    ]


def read_waits(session: Session) -> dict[str, Wait]:
    """Return why jobs with waiting runs wait, by DAG."""
    waits = waits_of_runs(metadata.unfinished_runs(session))
    tasks = metadata.tasks_by_priority(session, TaskId.SEARCH.value, {*WAITING, *OCCUPYING})
    return waits | enqueue(tasks, metadata.pool_slots(session))


def enqueue(tasks: Iterable[tuple[str, str, str]], slots: dict[str, int]) -> dict[str, Wait]:
    """Return the positions in the queues of the pools, by DAG.

    ``tasks`` are (DAG, pool, state) of each search that waits or runs, in the scheduler's order.
    """
    tasks = list(tasks)
    occupied = Counter(pool for _, pool, state in tasks if state in OCCUPYING)
    # A task with a slot starts before all tasks without one.
    waiting = sorted((task for task in tasks if task[2] in WAITING), key=lambda task: task[2] != "queued")
    found: dict[str, Wait] = {}
    positions: dict[str, int] = defaultdict(int)
    for dag_id, pool, state in waiting:
        if dag_id not in found:
            positions[pool] += 1
            reason = pool_reason(pool, slots.get(pool), occupied[pool], has_slot=state == "queued")
            found[dag_id] = Wait(positions[pool], pool, reason)
    return found


def pool_reason(pool: str, slots: int | None, occupied: int, *, has_slot: bool = False) -> str:
    """Return why a search waits for a slot; ``slots`` is ``None`` if the pool does not exist."""
    if has_slot:
        return "it has a slot and starts as soon as an Airflow worker is free"
    if slots is None:
        return f"the pool {pool} does not exist: ask the platform team to create it"
    if slots == 0:
        return f"the pool {pool} has no slots on this platform"
    if occupied >= slots:
        return (
            f"all {slots} slots of the pool {pool} are in use"
            if slots > 1
            else f"the only slot of the pool {pool} is in use"
        )
    return "starts in a moment"


def waits_of_runs(runs: Iterable[tuple[str, str, bool]]) -> dict[str, Wait]:
    """Return why queued runs have not started, by DAG; ``runs`` are (DAG, state, whether it is paused)."""
    runs = list(runs)
    running = {dag_id for dag_id, state, _ in runs if state == "running"}
    return {
        dag_id: Wait(None, "", _run_reason(paused=paused, behind=dag_id in running))
        for dag_id, state, paused in runs
        if state == "queued"
    }


def _run_reason(*, paused: bool, behind: bool) -> str:
    if paused:
        return "the job is paused: its run starts when you resume the job"
    return "the job's previous run has not finished" if behind else "starts in a moment"
