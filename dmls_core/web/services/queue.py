"""Running trainers and waiting runs, in the order in which Airflow's scheduler fills pools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dmls_core.airflow import database
from dmls_core.airflow.database import PooledTask, Session
from dmls_core.airflow.task_id import TaskId
from dmls_core.html.formats import duration
from dmls_core.search.study.elastic import LAST_TRIAL_SECONDS, NOTICE_SECONDS
from dmls_core.store import layout
from dmls_core.web.services.waiting_times import Duration, expected_duration, expected_starts

WAITING = ("scheduled", "queued")
_OCCUPYING = ("queued", "running", "deferred")
"""States of a task that occupies a slot of its pool."""
TRAINING = ("running", "deferred")
"""States of a task with a trainer: a worker starts it, then the task waits in the triggerer."""

GPU_TRIGGER = "dmls_core.airflow.runners.gpu_trigger.GpuTrigger"
"""Class of the trigger of a task that waits for a GPU: it holds a slot of its pool and has no trainer."""

ENDING = "finish"
"""Method of a search whose trainer has ended: its task waits for a worker only to report how."""

PAUSED = "the job is paused: its run goes on when you resume the job"

JOIN_TRIGGER = "airflow.providers.standard.triggers.temporal.DateTimeTrigger"
"""Class of the trigger of a helper that joins its search later: likewise."""

_RETURN_SECONDS = NOTICE_SECONDS + LAST_TRIAL_SECONDS
_RETURNED = Duration(NOTICE_SECONDS, _RETURN_SECONDS / 2, _RETURN_SECONDS)
"""When a helper's slot is free for a run that waits."""

_LAST = 5
"""Number of a job's last searches that say how long its next one takes."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A waiting run; ``position`` in the queue of ``pool`` counts from 1, ``None`` if unqueued.

    ``starts`` is in how many seconds it starts, if the jobs before it have run before.
    """

    position: int | None
    pool: str
    reason: str
    starts: Duration | None = None


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
    return "/".join(layout.parse_dag_id(dag_id))


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
        for task in database.task_instances(
            session,
            dag_id=dag_id,
            task_id=TaskId.SEARCH.value,
            states=TRAINING,
            except_triggers=(GPU_TRIGGER, JOIN_TRIGGER),
        )
    ]


def read_waits(session: Session) -> dict[str, Wait]:
    """Return why jobs with waiting runs wait, by DAG."""
    runs = database.unfinished_runs(session)
    halted = {dag_id for dag_id, state, paused in runs if paused and state == "running"}
    if halted:
        halted -= database.dags_at_work(session)
    waits = waits_of_runs(runs) | {dag_id: Wait(None, "", PAUSED) for dag_id in halted}
    tasks = database.tasks_by_priority(session, TaskId.SEARCH.value, {*WAITING, *_OCCUPYING})
    if not any(map(_waits, tasks)):
        return waits
    dag_ids = {task.dag_id for task in tasks}
    durations = database.last_durations(session, TaskId.SEARCH.value, dag_ids, _LAST)
    return waits | enqueue(tasks, database.pool_slots(session), durations)


def enqueue(
    tasks: Iterable[PooledTask], slots: dict[str, int], durations: Mapping[str, Sequence[float]]
) -> dict[str, Wait]:
    """Return the positions in the queues of the pools, by DAG.

    Args:
        tasks: each search that waits or runs, in the scheduler's order.
        slots: slots by pool.
        durations: seconds that the last searches of a DAG took.
    """
    tasks = list(tasks)
    occupied = Counter(task.pool for task in tasks if task.state in _OCCUPYING)
    # A task with a slot starts before all tasks without one.
    waiting = [task for task in tasks if _waits(task) and not _is_halted(task)]
    waiting.sort(key=lambda task: task.state == "scheduled")
    waits = {task.dag_id: Wait(None, "", PAUSED) for task in tasks if _waits(task) and _is_halted(task)}
    positions: dict[str, int] = defaultdict(int)
    for task, starts in zip(waiting, _starts(tasks, waiting, slots, durations), strict=True):
        if task.dag_id not in waits:
            pool, has_slot = task.pool, task.state == "queued"
            positions[pool] += 1
            if task.trigger == GPU_TRIGGER:
                reason = "waits for a GPU: all are in use"
            else:
                reason = _pool_reason(pool, slots.get(pool), occupied[pool], has_slot=has_slot)
            if starts and not has_slot and occupied[pool] >= slots[pool]:
                reason += f"; starts {_in_words(starts)}"
            waits[task.dag_id] = Wait(positions[pool], pool, reason, None if has_slot else starts)
    return waits


def _waits(task: PooledTask) -> bool:
    if task.helper or task.method == ENDING:
        return False
    return task.state in WAITING or task.trigger == GPU_TRIGGER


def _is_halted(task: PooledTask) -> bool:
    """Return whether the scheduler leaves a task alone until its job is resumed."""
    return task.paused and task.state != "queued"


def _starts(
    tasks: Sequence[PooledTask],
    waiting: Sequence[PooledTask],
    slots: dict[str, int],
    durations: Mapping[str, Sequence[float]],
) -> list[Duration | None]:
    """Return in how many seconds each waiting search starts; ``None`` if a duration before it is unknown."""
    now = datetime.now(UTC)
    expected = {dag_id: expected_duration(earlier) for dag_id, earlier in durations.items()}

    def left(task: PooledTask) -> Duration | None:
        if task.helper:
            return _RETURNED
        duration = expected.get(task.dag_id)
        return duration.left((now - task.started).total_seconds()) if duration and task.started else None

    start_times: dict[int, Duration | None] = {}
    for pool in {task.pool for task in waiting if slots.get(task.pool)}:
        running = [
            left(task) for task in tasks if task.pool == pool and task.state in TRAINING and not _waits(task)
        ]
        queue = {
            position: expected.get(task.dag_id) for position, task in enumerate(waiting) if task.pool == pool
        }
        # If a task waits for a GPU, other programs use those that no trainer uses.
        other_use = any(task.pool == pool and task.trigger == GPU_TRIGGER for task in waiting)
        if usable := min(slots[pool], len(running)) if other_use else slots[pool]:
            starts = expected_starts(usable, running, list(queue.values()))
            start_times |= dict(zip(queue, starts, strict=True))
    return [start_times.get(position) for position in range(len(waiting))]


def _in_words(starts: Duration) -> str:
    """Return when something starts, such as ``in about 12 min (8 min to 20 min)``."""
    likely = f" ({duration(starts.low)} to {duration(starts.high)})" if starts.low < starts.high else ""
    return f"in about {duration(starts.middle)}{likely}"


def _pool_reason(pool: str, slots: int | None, occupied: int, *, has_slot: bool = False) -> str:
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
