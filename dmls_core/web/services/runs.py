"""Read a job's runs from Airflow's database and from the files that trainers write."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from threading import Lock
from typing import Any

from pydantic import BaseModel, Field

from dmls_core.airflow import database
from dmls_core.airflow.database import DagRun, Session
from dmls_core.airflow.runs.job import INPUTS, PARAM
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import NotFoundError, ObjectMissingError, ValidationIssue
from dmls_core.store import JobRecord, ObjectInfo, Store, layout
from dmls_core.store.snapshots import Snapshots
from dmls_core.web.services import open_store
from dmls_core.web.services.queue import Lease, read_leases

_RESULT_TASKS = tuple(
    task.value for task in (TaskId.VALIDATE, TaskId.PLAN, TaskId.EVALUATE, TaskId.REGISTER, TaskId.PROMOTE)
)

MAX_RUNS = 200
_THREADS = 10
_MAX_BYTES = 32 << 20
_CACHED_RUNS = 64
_MAX_TRIALS = 2000

_RUNNER = "runner.json"
PAGES = {"report": layout.REPORT, "validation": layout.DATA_DOCS}
"""Pages in a run's folder, by their name in the API."""

TRIAL_FIELDS = (
    "number", "state", "model", "engine", "params", "value", "seconds", "same_as", "message", "steps",
)  # fmt: skip
"""Fields of a trial that the page shows, and the score at its last step; all others stay in the report."""

_trials: OrderedDict[str, dict[str, tuple[str, dict[str, Any]]]] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job's DAG.

    Attributes:
        name: what people call it: the job's version, the time, and what was changed for this run.
        kind: ``scheduled``, ``manual``, or ``backfill``.
        asked_by: user who started it by hand; ``changes`` are theirs, for this run.
        version: version of the job.
        run_key: name of its folder; ``None`` while it selects its data.
        interval: start and end of its data interval, if it has one.
        score: score on the holdout, to ``maximize`` or ``minimize``.
        registered: version of the model in MLflow; ``served_as`` is the one in Triton.
        mlflow: URL of the run in MLflow.
        engine: ``gpu`` or ``cpu``, once it is planned.
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
    name: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a run."""

    task_id: str
    map_index: int
    state: str
    try_number: int
    started: datetime | None
    ended: datetime | None


class RunDetails(BaseModel):
    """Everything about one run, as far as it has come."""

    run: Run
    tasks: list[Task]
    progress: dict[str, Any] | None
    seconds_left: float | None = Field(
        description="Estimate for the search, from the mean time of its trials."
    )
    trials: list[dict[str, Any]]
    result: dict[str, Any] | None
    insight: dict[str, Any] | None = Field(
        description="Baseline, examples of errors, worst segments, and trials on equal terms."
    )
    error: dict[str, Any] | None
    runner: dict[str, Any] | None
    has_report: bool
    has_validation: bool = Field(description="Whether Great Expectations' Data Docs exist.")
    leases: list[Lease] = Field(description="Trainers of the run that are at work.")


def read_runs(session: Session, team: str, name: str, *, limit: int = 50, run_id: str = "") -> list[Run]:
    """Return the latest runs of a job, newest first; only ``run_id`` if it is given."""
    dag_id = layout.dag_id(team, name)
    rows = database.dag_runs(session, dag_id, limit=limit, run_id=run_id)
    results = _read_results(session, dag_id, [row.run_id for row in rows])
    return [_run(team, name, row, results[row.run_id]) for row in rows]


def read_run(session: Session, team: str, name: str, run_id: str) -> Run:
    """Return one run; raise ``NotFoundError`` if the job has no run with this ID."""
    # PostgreSQL takes no text with a NUL.
    runs = [] if "\0" in run_id else read_runs(session, team, name, run_id=run_id)
    if not runs:
        raise NotFoundError(ValidationIssue(f"{team}/{name} has no run {run_id}", hint="list its runs"))
    return runs[0]


def read_run_details(session: Session, store: Store, team: str, name: str, run_id: str) -> RunDetails:
    """Return everything about one run; raise ``NotFoundError`` if the job has no run with this ID."""
    run = read_run(session, team, name, run_id)
    dag_id = layout.dag_id(team, name)
    files = read_run_files(store, team, name, run.run_key)
    return RunDetails(
        run=run,
        tasks=_read_tasks(session, dag_id, run_id),
        progress=files.progress,
        seconds_left=files.seconds_left,
        trials=files.trials,
        result=files.result,
        insight=files.insight,
        error=files.error if not files.result else None,
        runner=files.runner,
        has_report=files.has_report,
        has_validation=files.has_validation,
        leases=[lease for lease in read_leases(session, dag_id) if lease.run_id == run_id],
    )


def _read_tasks(session: Session, dag_id: str, run_id: str) -> list[Task]:
    """Return the tasks of a run by start time; tasks that have not started come last."""
    tasks = [
        Task(row.task_id, row.map_index, row.state or "none", row.try_number, row.start_date, row.end_date)
        for row in database.task_instances(session, dag_id=dag_id, run_id=run_id)
    ]
    return sorted(tasks, key=lambda task: (task.started is None, task.started or task.task_id))


@lru_cache(maxsize=4096)
def _record_at(bundle_version: str | None, team: str, name: str) -> JobRecord | None:
    """Return a job's record in one version of the registry; versions are immutable."""
    if not bundle_version:
        return None
    try:
        return Snapshots(open_store()).find(bundle_version, team, name)
    except NotFoundError:
        return None


Results = dict[str, Mapping[str, Any]]
"""Return values of a run's tasks, by task; the run's inputs under ``INPUTS``."""


def _read_results(session: Session, dag_id: str, run_ids: list[str]) -> Mapping[str, Results]:
    results: dict[str, Results] = defaultdict(dict)
    keys = ("return_value", INPUTS)
    for xcom in database.xcoms_of_runs(session, dag_id, run_ids, _RESULT_TASKS, keys):
        value = xcom.value
        if isinstance(value, Mapping):
            results[xcom.run_id][INPUTS if xcom.key == INPUTS else xcom.task_id] = value
        elif xcom.task_id == TaskId.PLAN and isinstance(value, list) and value:
            results[xcom.run_id][TaskId.PLAN] = {"engine": value[0]["engine"], "trainers": len(value)}
    return results


def _run(team: str, name: str, row: DagRun, results: Results) -> Run:
    # The run's own bundle version: that of its DAG version may change to a later registry.
    record = _record_at(row.bundle_version, team, name)
    plan, inputs, evaluated, registered, promoted = (
        results.get(task, {})
        for task in (TaskId.PLAN, INPUTS, TaskId.EVALUATE, TaskId.REGISTER, TaskId.PROMOTE)
    )
    conf = (row.conf or {}).get(PARAM)
    changes = conf if isinstance(conf, Mapping) else {}
    run_key_of_job = record.run_key if record and not changes.keys() - {"deploy"} else None
    interval = inputs.get("interval")
    if isinstance(interval, Mapping):  # runs of an earlier release: a tuple as Airflow stores it
        interval = interval["__data__"]
    return Run(
        run_id=row.run_id,
        state=str(row.state),
        kind=str(row.run_type),
        started=row.start_date,
        ended=row.end_date,
        asked_by=row.triggering_user_name,
        changes=changes,
        version=record.version if record else None,
        run_key=inputs.get("run_key") or run_key_of_job,
        interval=(interval[0], interval[1]) if interval else None,
        metric=evaluated.get("metric", ""),
        score=evaluated.get("score"),
        direction=evaluated.get("direction", ""),
        registered=registered.get("model_version"),
        served_as=promoted.get("version"),
        mlflow=registered.get("url", ""),
        engine=plan.get("engine", ""),
        trainers=plan.get("trainers"),
        name=run_name(record.version if record else None, row.start_date, interval, changes),
    )


def run_name(
    version: int | None,
    started: datetime | None,
    interval: Sequence[str] | None,
    changes: Mapping[str, Any],
) -> str:
    """Return what people call a run, such as ``job version 2, 22 Nov 2026 10:10:08 UTC (seed 11)``."""
    parts = [f"job version {version}"] if version else []
    parts.append(f"{started.astimezone(UTC):%d %b %Y %H:%M:%S} UTC" if started else "not started")
    if interval:
        parts.append(f"data of {interval[0][:10]} to {interval[1][:10]}")
    changed = ", ".join(_describe_change(key, value) for key, value in changes.items())
    return ", ".join(parts) + (f" ({changed})" if changed else "")


def _describe_change(key: str, value: object) -> str:
    """Return a change to the spec in words; of hyperparameters, only which ones."""
    if key == "hyperparameters" and isinstance(value, Mapping):
        tables = [table for table in value.values() if isinstance(table, Mapping)]
        return f"other {', '.join(sorted(set().union(*tables)))}"
    return f"{key} {value if isinstance(value, int | float | str) else json.dumps(value)}"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Files that a trainer has written into its run's folder; ``None`` for those that do not exist."""

    progress: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    insight: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    runner: dict[str, Any] | None = None
    trials: list[dict[str, Any]] = field(default_factory=list)
    has_report: bool = False
    has_validation: bool = False

    @property
    def seconds_left(self) -> float | None:
        """Estimate of the remaining search time, from the mean of its trials; ``None`` if unknown."""
        if self.result or not self.progress or self.progress.get("state") != "searching":
            return None
        left = int(self.progress.get("total", 0)) - int(self.progress.get("finished", 0))
        seconds = [trial["seconds"] for trial in self.trials if trial.get("same_as") is None]
        return left * sum(seconds) / len(seconds) if seconds and left >= 0 else None


def read_run_files(store: Store, team: str, name: str, run_key: str | None) -> RunFiles:
    """Read a run's folder; trials are cached by ETag. A run without a key has no files."""
    if run_key is None:
        return RunFiles()
    folder = layout.run_folder(team, name, run_key)
    names = (layout.PROGRESS, layout.RESULT, layout.INSIGHT, layout.ERROR, _RUNNER)
    with ThreadPoolExecutor(_THREADS) as threads:
        report, validation = (threads.submit(store.head, folder + file) for file in PAGES.values())
        documents = list(threads.map(lambda file: read_json(store, folder + file), names))
        progress, result, insight, error, runner = documents
        trials = _read_trials(store, folder, threads)
        pages = {"has_report": report.result() is not None, "has_validation": validation.result() is not None}
        return RunFiles(progress, result, insight, error, runner, trials, **pages)


def read_json(store: Store, key: str) -> dict[str, Any] | None:
    """Return the JSON object under ``key``; ``None`` if it is missing or is not a JSON object."""
    try:
        content = json.loads(store.read(key, limit=_MAX_BYTES)[0])
    except (ObjectMissingError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _shown_trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``TRIAL_FIELDS`` of a trial's file, and ``step_score``, by which pruned trials compare."""
    steps = trial.get("intermediate_values") or [None]
    return {name: trial.get(name) for name in TRIAL_FIELDS} | {"step_score": steps[-1]}


def _read_trials(store: Store, folder: str, threads: ThreadPoolExecutor) -> list[dict[str, Any]]:
    with _lock:
        cached = dict(_trials.get(folder, {}))
    listed = sorted(store.list(folder + layout.TRIALS), key=lambda info: info.key)[:_MAX_TRIALS]
    changed = [info for info in listed if cached.get(info.key, ("", {}))[0] != info.etag]

    def read(info: ObjectInfo) -> dict[str, Any] | None:
        return read_json(store, info.key)

    for info, trial in zip(changed, threads.map(read, changed), strict=True):
        if trial:
            cached[info.key] = (info.etag, _shown_trial(trial))
    with _lock:
        _trials[folder] = cached
        _trials.move_to_end(folder)
        while len(_trials) > _CACHED_RUNS:
            _trials.popitem(last=False)
    return sorted((trial for _, trial in cached.values()), key=lambda trial: int(trial["number"] or 0))
