"""What Airflow's database says of jobs, in a handful of queries whatever their number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.xcom import XComModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from dmls_core.airflow.task_id import TaskId
from dmls_core.web.index.waits import PREFIX, Wait, read_waits

TELLING = (TaskId.EVALUATE.value, TaskId.REGISTER.value, TaskId.PROMOTE.value)
"""Tasks whose answers tell what a run came to, in their order."""

KEPT_RUNS = 20
OVERLAP = timedelta(minutes=1)
"""Results are looked for again this long before the last one that was seen: commits overtake each other."""


@dataclass(frozen=True, slots=True)
class Dag:
    """A job's DAG."""

    paused: bool
    next_run: datetime | None


@dataclass
class Outcomes:
    """What a job's runs came to.

    Attributes:
        metric: by which they are scored.
        direction: ``maximize`` or ``minimize``.
        scores: on the holdout, by run, in the order in which they came.
        registered: version in MLflow, by run.
        models: version in MLflow, by the version in Triton that it became.
    """

    metric: str = ""
    direction: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    registered: dict[str, int] = field(default_factory=dict)
    models: dict[int, int] = field(default_factory=dict)

    def take(self, run_id: str, task: str, answer: Mapping[str, Any]) -> None:
        """Note what one of ``TELLING`` answered."""
        if task == TaskId.EVALUATE:
            self.metric, self.direction = str(answer.get("metric", "")), str(answer.get("direction", ""))
            if isinstance(answer.get("score"), int | float):
                self.scores[run_id] = float(answer["score"])
        elif task == TaskId.REGISTER:
            if isinstance(answer.get("model_version"), int):
                self.registered[run_id] = answer["model_version"]
        elif isinstance(answer.get("version"), int) and run_id in self.registered:
            self.models[answer["version"]] = self.registered[run_id]
        for kept in (self.scores, self.registered, self.models):
            while len(kept) > KEPT_RUNS:
                del kept[next(iter(kept))]  # type: ignore[arg-type]


@dataclass
class ScheduledJobs:
    """What was read of the database; outcomes are kept, and only later ones are read again."""

    dags: dict[str, Dag] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    outcomes: dict[str, Outcomes] = field(default_factory=dict)
    _last: datetime | None = None

    def refresh(self, session: Session) -> None:
        """Read the DAGs, who waits, and outcomes that have come since the last call."""
        columns = DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after
        rows = session.execute(select(*columns).where(DagModel.dag_id.startswith(PREFIX, autoescape=True)))
        self.dags = {dag_id: Dag(paused, next_run) for dag_id, paused, next_run in rows}
        self.waits = read_waits(session)
        self._read_outcomes(session)

    def _read_outcomes(self, session: Session) -> None:
        columns = (
            XComModel.dag_id,
            XComModel.run_id,
            XComModel.task_id,
            XComModel.value,
            XComModel.timestamp,
        )
        query = (
            select(*columns)
            .where(
                XComModel.key == "return_value",
                XComModel.task_id.in_(TELLING),
                XComModel.dag_id.startswith(PREFIX, autoescape=True),
            )
            .order_by(XComModel.timestamp)
        )
        if self._last:
            query = query.where(XComModel.timestamp > self._last - OVERLAP)
        for dag_id, run_id, task_id, value, timestamp in session.execute(query):
            self._last = timestamp
            if isinstance(value, Mapping):
                self.outcomes.setdefault(dag_id, Outcomes()).take(run_id, task_id, value)


def bundle_version(session: Session, name: str) -> str | None:
    """Return the version of the registry that Airflow's DAG processor has now."""
    found: str | None = session.scalar(select(DagBundleModel.version).where(DagBundleModel.name == name))
    return found
