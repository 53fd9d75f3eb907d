"""What Airflow's database says of jobs, in a handful of queries whatever their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import select
from sqlalchemy.orm import Session

PREFIX = "dmls."
KEPT_SCORES = 20
OVERLAP = timedelta(minutes=1)
"""Results are looked for again this long before the last one that was seen: commits overtake each other."""

WAITING = ("scheduled", "queued")


@dataclass(frozen=True, slots=True)
class Dag:
    """A job's DAG."""

    paused: bool
    next_run: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """A search that waits for its trainer: its place in the queue, from 1, and why."""

    place: int
    reason: str


@dataclass
class Scores:
    """Scores of a job's runs, by run, in the order in which they came."""

    metric: str = ""
    direction: str = ""
    by_run: dict[str, float] = field(default_factory=dict)


@dataclass
class ScheduledJobs:
    """What was read of the database; scores are kept, and only later ones are read again."""

    dags: dict[str, Dag] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    scores: dict[str, Scores] = field(default_factory=dict)
    _last: datetime | None = None

    def refresh(self, session: Session) -> None:
        """Read the DAGs, who waits, and scores that have come since the last call."""
        columns = DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after
        rows = session.execute(select(*columns).where(DagModel.dag_id.startswith(PREFIX, autoescape=True)))
        self.dags = {dag_id: Dag(paused, next_run) for dag_id, paused, next_run in rows}
        self.waits = read_waits(session)
        self._refresh_scores(session)

    def _refresh_scores(self, session: Session) -> None:
        query = (
            select(XComModel.dag_id, XComModel.run_id, XComModel.value, XComModel.timestamp)
            .where(
                XComModel.key == "return_value",
                XComModel.task_id == "evaluate",
                XComModel.dag_id.startswith(PREFIX, autoescape=True),
            )
            .order_by(XComModel.timestamp)
        )
        if self._last:
            query = query.where(XComModel.timestamp > self._last - OVERLAP)
        for dag_id, run_id, value, timestamp in session.execute(query):
            self._last = timestamp
            if isinstance(value, Mapping):
                self._take(dag_id, run_id, value)

    def _take(self, dag_id: str, run_id: str, value: Mapping[str, Any]) -> None:
        known = self.scores.setdefault(dag_id, Scores())
        known.metric, known.direction = str(value.get("metric", "")), str(value.get("direction", ""))
        if isinstance(value.get("score"), int | float):
            known.by_run[run_id] = float(value["score"])
        while len(known.by_run) > KEPT_SCORES:
            del known.by_run[next(iter(known.by_run))]


def bundle_version(session: Session, name: str) -> str | None:
    """Return the version of the registry that Airflow's DAG processor has now."""
    found: str | None = session.scalar(select(DagBundleModel.version).where(DagBundleModel.name == name))
    return found


def read_waits(session: Session) -> dict[str, Wait]:
    """Return, by DAG, the searches that wait for a slot of their pool."""
    pools = {str(name): int(slots) for name, slots in session.execute(select(Pool.pool, Pool.slots))}
    query = (
        select(TaskInstance.dag_id, TaskInstance.pool, TaskInstance.state, TaskInstance.queued_dttm)
        .where(
            TaskInstance.task_id == "search",
            TaskInstance.state.in_((*WAITING, "running")),
            TaskInstance.dag_id.startswith(PREFIX, autoescape=True),
        )
        .order_by(TaskInstance.priority_weight.desc(), TaskInstance.start_date, TaskInstance.dag_id)
    )
    busy: dict[str, int] = defaultdict(int)
    waiting: list[tuple[str, str]] = []
    for dag_id, pool, state, _ in session.execute(query):
        if state == "running":
            busy[pool] += 1
        elif dag_id not in {known for known, _ in waiting}:
            waiting.append((dag_id, pool))
    return {
        dag_id: Wait(place, wait_reason(pool, pools.get(pool), busy[pool]))
        for place, (dag_id, pool) in enumerate(waiting, start=1)
    }


def wait_reason(pool: str, slots: int | None, busy: int) -> str:
    """Say why a search waits, given its pool's slots (``None``: no such pool) and the trainers at work."""
    if slots is None:
        return f"the pool {pool} does not exist: the platform team must create it"
    if slots == 0:
        return f"the pool {pool} has no slots on this platform"
    if busy >= slots:
        return f"all {slots} slots of the pool {pool} are in use"
    return "starts in a moment"
