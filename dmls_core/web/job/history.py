"""A job's runs, as Airflow's database and the registry's snapshots tell them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from dmls_core.airflow.job import INPUTS, PARAM
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import NotFoundError, ObjectMissingError, ValidationIssue
from dmls_core.store import JobRecord, layout
from dmls_core.web.backend import open_store

ANSWERS = tuple(
    task.value for task in (TaskId.VALIDATE, TaskId.PLAN, TaskId.EVALUATE, TaskId.REGISTER, TaskId.PROMOTE)
)
"""Tasks whose answers tell of a run."""

MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job's DAG.

    Attributes:
        run_id: Airflow's name of it.
        state: Airflow's.
        kind: how it was started: ``scheduled``, ``manual``, ``backfill``.
        started: when, if it has.
        ended: when, if it has.
        asked_by: the user who started it by hand.
        changes: what they changed for it.
        version: of the job.
        run_key: names its folder; ``None`` while it chooses its data.
        interval: ends of the interval of data that it is for, if it is for one.
        metric: by which it is scored.
        score: on the holdout.
        direction: ``maximize`` or ``minimize``.
        registered: version of the model in MLflow.
        served_as: version in Triton that it became, if it was deployed.
        mlflow: address of its page in MLflow.
        engine: ``gpu`` or ``cpu``, once it is planned.
        trainers: how many search side by side, likewise.
    """

    run_id: str
    state: str
    kind: str
    started: datetime | None
    ended: datetime | None
    asked_by: str | None
    changes: Mapping[str, Any]
    version: int | None
    run_key: str | None
    interval: tuple[str, str] | None = None
    metric: str = ""
    score: float | None = None
    direction: str = ""
    registered: int | None = None
    served_as: int | None = None
    mlflow: str = ""
    engine: str = ""
    trainers: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a run."""

    task_id: str
    map_index: int
    state: str
    try_number: int
    started: datetime | None
    ended: datetime | None


@dataclass
class _Answers:
    by_task: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def get(self, task: str) -> Mapping[str, Any]:
        return self.by_task.get(task, {})


def read_runs(session: Session, team: str, name: str, *, limit: int = 50, run_id: str = "") -> list[Run]:
    """Return the latest runs of a job, the newest first; only ``run_id`` where that is given."""
    dag_id = layout.dag_id(team, name)
    query = (
        select(DagRun)
        .where(DagRun.dag_id == dag_id)
        .order_by(DagRun.run_after.desc(), DagRun.id.desc())
        .limit(limit)
    )
    if run_id:
        query = query.where(DagRun.run_id == run_id)
    found = session.scalars(query).all()
    answers = _read_answers(session, dag_id, [row.run_id for row in found])
    return [_run(team, name, row, answers[row.run_id]) for row in found]


def read_run(session: Session, team: str, name: str, run_id: str) -> Run:
    """Return one run.

    Raises:
        NotFoundError: there is none of that name.
    """
    found = read_runs(session, team, name, run_id=run_id)
    if not found:
        raise NotFoundError(ValidationIssue(f"{team}/{name} has no run {run_id}", hint="list its runs"))
    return found[0]


def read_tasks(session: Session, team: str, name: str, run_id: str) -> list[Task]:
    """Return the tasks of a run in the order in which they started, those to come last."""
    query = select(TaskInstance).where(
        TaskInstance.dag_id == layout.dag_id(team, name), TaskInstance.run_id == run_id
    )
    tasks = [
        Task(row.task_id, row.map_index, row.state or "none", row.try_number, row.start_date, row.end_date)
        for row in session.scalars(query)
    ]
    return sorted(tasks, key=lambda task: (task.started is None, task.started or task.task_id))


@lru_cache(maxsize=4096)
def _record_at(bundle_version: str | None, team: str, name: str) -> JobRecord | None:
    """Return a job as it was in one version of the registry; these never change."""
    if not bundle_version:
        return None
    try:
        snapshot = json.loads(open_store().get(layout.snapshot(bundle_version)))
    except ObjectMissingError:
        return None
    wanted = (team, name)
    entry = next((entry for entry in snapshot["jobs"] if (entry["team"], entry["name"]) == wanted), None)
    return JobRecord.from_json(entry) if entry else None


def _read_answers(session: Session, dag_id: str, run_ids: list[str]) -> dict[str, _Answers]:
    query = select(XComModel.run_id, XComModel.task_id, XComModel.key, XComModel.value).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id.in_(run_ids),
        XComModel.task_id.in_(ANSWERS),
        XComModel.key.in_(("return_value", INPUTS)),
    )
    found: dict[str, _Answers] = defaultdict(_Answers)
    for run_id, task_id, key, value in session.execute(query):
        if isinstance(value, Mapping):
            found[run_id].by_task[INPUTS if key == INPUTS else task_id] = value
        elif task_id == TaskId.PLAN and isinstance(value, list) and value:
            found[run_id].by_task[TaskId.PLAN] = {"engine": value[0]["engine"], "trainers": len(value)}
    return found


def _run(team: str, name: str, row: DagRun, answers: _Answers) -> Run:
    # The run's own: what Airflow notes at the DAG's version may move on to a later registry.
    record = _record_at(row.bundle_version, team, name)
    planned = answers.get(TaskId.PLAN)
    inputs, evaluated, tracked = (
        answers.get(INPUTS),
        answers.get(TaskId.EVALUATE),
        answers.get(TaskId.REGISTER),
    )
    asked = (row.conf or {}).get(PARAM)
    changes = asked if isinstance(asked, Mapping) else {}
    as_admitted = record.run_key if record and not changes.keys() - {"deploy"} else None
    interval = inputs.get("interval")
    return Run(
        run_id=row.run_id,
        state=str(row.state),
        kind=str(row.run_type),
        started=row.start_date,
        ended=row.end_date,
        asked_by=row.triggering_user_name,
        changes=changes,
        version=record.version if record else None,
        run_key=inputs.get("run_key") or as_admitted,
        interval=(interval[0], interval[1]) if interval else None,
        metric=evaluated.get("metric", ""),
        score=evaluated.get("score"),
        direction=evaluated.get("direction", ""),
        registered=tracked.get("model_version"),
        served_as=answers.get(TaskId.PROMOTE).get("version"),
        mlflow=tracked.get("url", ""),
        engine=planned.get("engine", ""),
        trainers=planned.get("trainers"),
    )
