"""Read the data of jobs from the store: registry, statuses, results."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dmls_core.cli.console import ago
from dmls_core.cli.options import JobName
from dmls_core.errors import NotFoundError, ObjectMissingError, ValidationIssue
from dmls_core.intake import Status, read_status
from dmls_core.store import JobRecord, Registry, Store, layout

THREADS = 16


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of ``dmls jobs``."""

    job: str
    state: str
    message: str
    version: int | None
    run_key: str | None
    updated: str

    @property
    def age(self) -> str:
        """Return the age of the status as text."""
        if not self.updated:
            return ""
        updated = datetime.fromisoformat(self.updated).astimezone(UTC)
        return f"{ago((datetime.now(UTC) - updated).total_seconds())} ago"

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


def job_rows(store: Store) -> list[JobRow]:
    """Return all jobs and all submissions that were not accepted, the latest change first."""
    records = {(record.team, record.name): record for record in Registry(store).jobs()}
    answered = {
        (upload.team, upload.job)
        for info in store.list(layout.INCOMING)
        if (upload := layout.parse_incoming(info.key)) and upload.filename == layout.STATUS_JSON
    }
    places = sorted(answered | {place for place, record in records.items() if record.state == "active"})
    with ThreadPoolExecutor(THREADS) as threads:
        statuses = threads.map(lambda place: read_status(store, *place), places)
    rows = [_row(place, status, records.get(place)) for place, status in zip(places, statuses, strict=True)]
    return sorted(rows, key=lambda row: row.updated, reverse=True)


def _row(place: tuple[str, str], status: Status | None, record: JobRecord | None) -> JobRow:
    active = record if record and record.state == "active" else None
    return JobRow(
        job="/".join(place),
        state=status.state if status else "accepted",
        message=status.message if status else "not checked yet",
        version=active.version if active else None,
        run_key=active.run_key if active else None,
        updated=status.updated if status else active.admitted if active else "",
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
        }

    def facts(self) -> list[tuple[str, Any]]:
        """Return names and values to print."""
        rows: list[tuple[str, Any]] = [("job", self.job)]
        if self.status:
            rows += [
                ("state", self.status.state),
                ("message", self.status.message),
                ("updated", self.status.updated),
            ]
        if self.record:
            state = "" if self.record.state == "active" else f" ({self.record.state})"
            rows += [
                ("version", f"{self.record.version}{state}"),
                ("run key", self.record.run_key),
                ("data", "\n".join(f"{item.key}, {item.size:,} bytes" for item in self.record.data)),
            ]
        if self.spec:
            rows += [("model", ", ".join(model["name"] for model in self.spec["models"]))]
        if self.result:
            rows += result_facts(self.result)
        if self.runner:
            rows += runner_facts(self.runner)
        rows += sorted(self.status.links.items()) if self.status else []
        return rows


def describe_job(store: Store, job: JobName) -> JobView:
    """Read the data of one job; raise ``NotFoundError`` if there is no such job or submission."""
    layout.check_name("team", job.team)
    layout.check_name("job", job.name)
    status, record = read_status(store, *job), Registry(store).job(*job)
    if status is None and record is None:
        raise NotFoundError(ValidationIssue(f"there is no job {job}", hint="`dmls jobs` lists them"))
    spec = result = runner = None
    if record:
        own_run = status.run if status and status.run_key == record.run_key else ""
        folder = layout.run_folder(*job, own_run or record.run_key)
        spec = Registry(store).spec(record.spec_sha256)
        result, runner = _json(store, folder + layout.RESULT), _json(store, folder + "runner.json")
    return JobView(job, status, record, spec, result, runner)


def result_facts(result: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the content of a run's ``result.json`` as names and values."""
    parameters = "\n".join(f"{name} = {value}" for name, value in sorted(result["best_params"].items()))
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in result["seconds"].items())
    return [
        ("engine", result["engine"]),
        ("trials", result["n_trials"]),
        (f"holdout {result['metric']}", f"{result['score']:.4f}"),
        ("cross-validated", "" if result["cv_score"] is None else f"{result['cv_score']:.4f}"),
        ("parameters", parameters),
        ("seconds", seconds),
    ]


def runner_facts(runner: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the outcome of the trainer's process as names and values."""
    rows = [("trainer", f"{runner['runner']}, exit code {runner['exit_code']}")]
    if runner["runner"] == "docker":
        labels = "\n".join(f"{name}={value}" for name, value in sorted(runner["labels"].items()))
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
