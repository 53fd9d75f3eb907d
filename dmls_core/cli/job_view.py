"""Read a job: registry, statuses and results from the store; runs, tasks and logs from Airflow's REST API."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

from dmls_core.airflow.jobs import approval
from dmls_core.airflow.task_id import TaskId
from dmls_core.cli.console import JobName, err
from dmls_core.devstack.airflow_client import AirflowClient
from dmls_core.errors import DmlsError, NotFoundError, ObjectMissingError, PlatformError, ValidationIssue
from dmls_core.html.formats import describe_ensemble, describe_refit
from dmls_core.intake import Status, read_status
from dmls_core.settings import Settings
from dmls_core.store import (
    JobRecord,
    ProcessFailure,
    Registry,
    ServedModel,
    Store,
    layout,
    read_process_failures,
    read_served,
)

_THREADS = 16


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A waiting run: its position in the queue of a pool, if it is in one, why it waits, when it starts.

    ``starts`` has the ISO times ``earliest``, ``expected`` and ``latest``, if they can be said.
    """

    position: int | None
    reason: str
    starts: dict[str, str] | None

    @property
    def text(self) -> str:
        """Return the position, the reason and the time in one line."""
        position = f"No. {self.position} in the queue: " if self.position else ""
        return position + self.reason


@dataclass(frozen=True, slots=True)
class AirflowReply:
    """What Airflow replied about jobs: the queue positions of waiting runs, and which jobs are paused."""

    queue: Mapping[str, QueuePosition] = field(default_factory=dict)
    paused: Collection[str] | None = None

    def is_paused(self, job: str) -> bool | None:
        """Return whether a job is paused; ``None`` if Airflow was not asked or did not answer."""
        return None if self.paused is None else job in self.paused


def read_airflow(settings: Settings) -> AirflowReply:
    """Ask Airflow for its jobs, if one is configured; if it does not answer, say so."""
    if not (settings.airflow_url and settings.airflow_username and settings.airflow_password):
        return AirflowReply()
    try:
        rest = airflow_client(settings)
        return AirflowReply(_read_queue(rest), _read_paused(rest))
    except DmlsError as error:
        err.print(f"the queue and the paused jobs are unknown: {error}", markup=False)
        return AirflowReply()


def airflow_client(settings: Settings) -> AirflowClient:
    """Return a session at the API server of the settings; raise ``PlatformError`` if one is not set."""
    return AirflowClient(
        settings.require("airflow_url"),
        settings.require("airflow_username"),
        settings.require("airflow_password"),
    )


def _read_queue(rest: AirflowClient) -> dict[str, QueuePosition]:
    entries = rest.get("/dmls/api/v1/queue") or []
    return {
        entry["job"]: QueuePosition(entry["place"], entry["reason"], entry["starts"]) for entry in entries
    }


PAGE = 100
"""DAGs of one response; Airflow's default limit allows no more."""


def _read_paused(rest: AirflowClient) -> set[str]:
    paused: set[str] = set()
    total, offset = 1, 0
    while offset < total:
        page = rest.get(f"/api/v2/dags?paused=true&tags=dmls&order_by=dag_id&limit={PAGE}&offset={offset}")
        dag_ids = [dag["dag_id"] for dag in page["dags"]]
        paused |= {"/".join(layout.parse_dag_id(dag_id)) for dag_id in dag_ids if layout.is_of_job(dag_id)}
        total, offset = page["total_entries"], offset + PAGE
    return paused


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One line of ``dmls jobs``; ``paused`` is ``None`` if Airflow did not say."""

    job: str
    state: str
    message: str
    version: int | None
    run_key: str | None
    updated: str
    served: ServedModel | None = None
    queue: QueuePosition | None = None
    paused: bool | None = None


def job_rows(store: Store, settings: Settings) -> list[ListedJob]:
    """Return all jobs and all submissions that were not accepted, the latest change first."""
    records = {(record.team, record.name): record for record in Registry(store).jobs()}
    answered = {
        (upload.team, upload.job)
        for info in store.list(layout.INCOMING)
        if (upload := layout.parse_incoming(info.key)) and upload.filename == layout.STATUS_JSON
    }
    job_keys = sorted(answered | {job for job, record in records.items() if record.state == "active"})
    with ThreadPoolExecutor(_THREADS) as threads:
        statuses = threads.map(lambda job: read_status(store, *job), job_keys)
        served = threads.map(lambda job: read_served(store, *job) if job in records else None, job_keys)
    jobs = list(zip(job_keys, statuses, served, strict=True))
    airflow = read_airflow(settings) if jobs else AirflowReply()
    rows = [_row(job, status, records.get(job), model, airflow) for job, status, model in jobs]
    return sorted(rows, key=lambda row: row.updated, reverse=True)


def _row(
    job: tuple[str, str],
    status: Status | None,
    record: JobRecord | None,
    served: ServedModel | None,
    airflow: AirflowReply,
) -> ListedJob:
    name = "/".join(job)
    active = record if record and record.state == "active" else None
    retired = record is not None and active is None and (status is None or status.state == "waiting")
    return ListedJob(
        job=name,
        state="retired" if retired else status.state if status else "accepted",
        message=status.message if status else "not checked yet",
        version=active.version if active else None,
        run_key=active.run_key if active else None,
        updated=status.updated if status else active.admitted if active else "",
        served=served,
        queue=airflow.queue.get(name),
        paused=airflow.is_paused(name) if active else None,
    )


@dataclass(frozen=True, slots=True)
class JobView:
    """The data of one job in the store."""

    job: JobName
    status: Status | None
    record: JobRecord | None
    spec: dict[str, Any] | None
    result: dict[str, Any] | None
    runner: dict[str, Any] | None
    served: ServedModel | None = None
    queue: QueuePosition | None = None
    paused: bool | None = None
    run: str = ""
    process_failures: Sequence[ProcessFailure] = ()

    @property
    def issues(self) -> tuple[ValidationIssue, ...]:
        """Return the errors of the submission or its run."""
        return self.status.errors if self.status else ()

    def as_json(self) -> dict[str, Any]:
        """Return the view as JSON."""
        return {
            "schema": 1,
            "job": str(self.job),
            "status": self.status.as_json() if self.status else None,
            "record": self.record.as_json() if self.record else None,
            "spec": self.spec,
            "result": self.result,
            "runner": self.runner,
            "served": self.served.as_json() if self.served else None,
            "queue": asdict(self.queue) if self.queue else None,
            "paused": self.paused,
            "process_failures": [asdict(failure) for failure in self.process_failures],
        }

    def facts(self) -> list[tuple[str, Any]]:
        """Return names and values to print."""
        rows: list[tuple[str, Any]] = [("job", self.job)]
        if self.status:
            rows += [
                ("state", self.status.state),
                ("message", self.status.summary),
                ("updated", self.status.updated),
            ]
        if self.queue:
            rows += [("waits", self.queue.text)]
        if self.paused:
            rows += [("paused", f"no task starts until `dmls resume {self.job}`")]
        if self.served:
            rows += [("served", self.served.text)]
        rows += [("process", failure.text) for failure in self.process_failures]
        if self.record:
            state = "" if self.record.state == "active" else f" ({self.record.state})"
            rows += [
                ("version", f"{self.record.version}{state}"),
                ("run key", self.record.run_key),
                ("data", [f"{item.key}, {item.size:,} bytes" for item in self.record.data]),
            ]
        if self.spec:
            rows += [("model", ", ".join(model["name"] for model in self.spec["models"]))]
        if self.result:
            # What is served may be of an earlier run.
            rows += [("latest run", self.run), *_result_facts(self.result)]
        if self.runner:
            rows += runner_facts(self.runner)
        rows += sorted(self.status.links.items()) if self.status else []
        return rows


def describe_job(store: Store, job: JobName, settings: Settings) -> JobView:
    """Read the data of one job; raise ``NotFoundError`` if there is no such job or submission."""
    layout.check_name("team", job.team)
    layout.check_name("job", job.name)
    status, record = read_status(store, *job), Registry(store).job(*job)
    if status is None and record is None:
        raise NotFoundError(ValidationIssue(f"there is no job {job}", hint="`dmls jobs` lists them"))
    spec = result = runner = None
    run = ""
    if record:
        own_run = status.run if status and status.run_key == record.run_key else ""
        run = own_run or record.run_key
        folder = layout.run_folder(*job, run)
        spec = Registry(store).spec(record.spec_sha256)
        result, runner = _json(store, folder + layout.RESULT), _json(store, folder + "runner.json")
    served = read_served(store, *job) if record else None
    airflow = read_airflow(settings)
    queue, paused = airflow.queue.get(str(job)), airflow.is_paused(str(job))
    failures = read_process_failures(store, layout.model_name(*job)).recent() if served else []
    return JobView(job, status, record, spec, result, runner, served, queue, paused, run, failures)


def _result_facts(result: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the content of a run's ``result.json`` as names and values."""
    tuned = sorted(set(result.get("tuned", result["best_params"])) & result["best_params"].keys())
    parameters = [f"{name} = {result['best_params'][name]}" for name in tuned]
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in result["seconds"].items())
    return [
        ("best model", f"{result['model']} on {result['engine']}"),
        ("trials", result["n_trials"]),
        *([("note", result["shortfall"])] if result.get("shortfall") else []),
        *([("ensemble", describe_ensemble(result["ensemble"]))] if result.get("ensemble") else []),
        (f"holdout {result['metric']}", f"{result['score']:.4f}"),
        ("cross-validated", "" if result["cv_score"] is None else f"{result['cv_score']:.4f}"),
        *(("warning", warning) for warning in result.get("warnings", [])),
        ("tuned parameters", parameters),
        ("", describe_refit(result)),
        ("seconds", seconds),
    ]


def runner_facts(runner: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the outcome of the trainer's process as names and values."""
    rows: list[tuple[str, Any]] = [("trainer", f"{runner['runner']}, exit code {runner['exit_code']}")]
    if runner["runner"] == "docker":
        labels = [f"{name}={value}" for name, value in sorted(runner["labels"].items())]
        times = f"{runner['started'][:19]} to {runner['finished'][:19]} UTC"
        rows += [
            ("image", runner["image"]),
            ("container", f"{runner['container'][:12]}, {times}"),
            ("labels", labels),
        ]
    return rows


def _json(store: Store, key: str) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(store.get(key))
    except ObjectMissingError:
        return None
    return content


REQUEST_SECONDS = 30.0
"""Longest wait for Airflow to list an approval after the status announces it."""

_ANSWER_SECONDS = 120.0
"""Longest time without an answer of Airflow, once it has the approval."""


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """One task instance; ``map_index`` is -1 unless it is mapped, ``seconds`` is None until it has ended."""

    task_id: str
    map_index: int
    state: str
    try_number: int
    seconds: float | None


class JobRuns:
    """The runs of one job's DAG; raises ``PlatformError`` if Airflow does not answer or has no address."""

    def __init__(self, settings: Settings, team: str, name: str) -> None:
        self.dag_id = layout.dag_id(team, name)
        self._rest = airflow_client(settings)

    def latest(self) -> str:
        """Return the id of the latest run; raise ``NotFoundError`` if there is none."""
        answer = self._rest.get(self._path("dagRuns?order_by=-run_after&limit=1"))
        if not (answer and answer["dag_runs"]):
            raise NotFoundError(f"Airflow has no run of {self.dag_id} yet; try again in a few seconds")
        run: str = answer["dag_runs"][0]["dag_run_id"]
        return run

    def tasks(self, run: str) -> list[TaskInstance]:
        """Return the tasks of a run in the order of their start; those not started come last."""
        instances = self._get(f"dagRuns/{quote(run)}/taskInstances")["task_instances"]
        instances.sort(key=lambda entry: (entry["start_date"] is None, entry["start_date"] or ""))
        return [
            TaskInstance(
                entry["task_id"],
                entry["map_index"],
                entry["state"] or "none",
                entry["try_number"],
                entry["duration"],
            )
            for entry in instances
        ]

    def log(self, run: str, task: TaskInstance) -> Iterator[str]:
        """Yield the lines of a task's latest try."""
        path = f"dagRuns/{quote(run)}/taskInstances/{quote(task.task_id)}/logs/{task.try_number}"
        answer = self._get(f"{path}?map_index={task.map_index}&full_content=true")
        for entry in answer["content"]:
            yield entry if isinstance(entry, str) else _line(entry)

    def pending_approval(self, run: str) -> tuple[str, str] | None:
        """Return subject and body of the approval that a run waits for; ``None`` if there is none."""
        answer = self._get(f"dagRuns/{quote(run)}/hitlDetails?response_received=false")
        for entry in answer["hitl_details"]:
            if approval.can_be_answered(entry, "Approve"):
                return entry["subject"], entry["body"] or ""
        return None

    def waiting(self) -> str:
        """Return the id of the running run if it waits for an approval, else an empty text."""
        answer = self._rest.get(self._path("dagRuns?state=running&order_by=-run_after&limit=1"))
        runs = [entry["dag_run_id"] for entry in answer["dag_runs"]] if answer else []
        return next((run for run in runs if self.pending_approval(run)), "")

    def approve(self, show: Callable[[str], None]) -> None:
        """Approve what a run waits for, as a user does on Airflow's page, until Airflow continues.

        The run is the running one, or else the latest. ``show`` is called with the subject, and once if
        Airflow takes long. Raises ``NotFoundError`` if the run waits for no approval, and ``PlatformError``
        if Airflow does not answer.
        """
        run = self.waiting() or self.latest()
        subject, late = "", False
        answered = began = time.monotonic()
        while True:
            try:
                if subject and self._has_ended(run):
                    return
                if asked := self.pending_approval(run):
                    if not subject:
                        began = time.monotonic()
                        show(asked[0])
                    subject = asked[0]
                    path = f"dagRuns/{quote(run)}/taskInstances/{TaskId.APPROVE}/-1/hitlDetails"
                    time.sleep(approval.PAUSE_SECONDS)
                    self._rest.call("PATCH", self._path(path), approval.body_of("Approve"))
                answered = time.monotonic()
            except PlatformError as error:
                # The answer may have counted although its response was lost, or another user's came first.
                if not subject:
                    raise
                if time.monotonic() - answered > _ANSWER_SECONDS:
                    raise PlatformError(
                        f"approved, but Airflow no longer answers: {error}. `dmls show` has the job's state"
                    ) from error
            if not subject and time.monotonic() - began > REQUEST_SECONDS:
                raise NotFoundError(f"the latest run of {self.dag_id} waits for no approval")
            if subject and not late and time.monotonic() - began > _ANSWER_SECONDS:
                late = True
                show("approved; Airflow has not continued yet. Interrupting this command changes nothing")
            time.sleep(0.5)

    def _has_ended(self, run: str) -> bool:
        return all(
            approval.has_settled(task.state) for task in self.tasks(run) if task.task_id == TaskId.APPROVE
        )

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._rest.call("GET", self._path(path))
        return answer

    def _path(self, path: str) -> str:
        return f"/api/v2/dags/{quote(self.dag_id)}/{path}"


def _line(entry: dict[str, Any]) -> str:
    """Return a structured log message as a line."""
    time = str(entry.get("timestamp") or "")[:19].replace("T", " ")
    level = str(entry.get("level") or "").upper()
    head = " ".join(part for part in (time, f"{level:<7}" if level else "") if part)
    lines = str(entry["event"]).splitlines() or [""]
    for detail in entry.get("error_detail") or ():
        lines.append(f"{detail.get('exc_type', '')}: {detail.get('exc_value', '')}".rstrip())
    return "\n".join(f"{head} {line}" if head else line for line in lines)
