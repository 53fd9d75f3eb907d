"""The job that a DAG file describes, with one run's changes, inputs and files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow.sdk import Context

from dmls_core.airflow.runs.intervals import Intervals, intervals_of
from dmls_core.airflow.runs.run_inputs import RunInputs
from dmls_core.airflow.shards import read_shard
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import (
    ObjectMissingError,
    PlatformError,
    RejectedModelError,
    RunnerError,
    SpecError,
    ValidationIssue,
)
from dmls_core.spec import Spec
from dmls_core.store import DataObject, JobRecord, Store, layout


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted job at one version, in one of its runs.

    Attributes:
        spec: with a user's changes for this run.
        inputs: the run's own data, if the run selected data by interval or of a source, or was changed by a
            user.
        changes: a user's changes for this run only, as given.
        deploy: whether the user asked to deploy the run's model.
    """

    record: JobRecord
    spec: Spec
    inputs: RunInputs | None = None
    backfill: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    deploy: bool = False

    @property
    def changed(self) -> bool:
        """Whether the run's spec differs from the job's."""
        return bool(self.changes.keys() - {"deploy"})

    @property
    def spec_sha256(self) -> str:
        """Hash of the run's spec."""
        return self.spec.sha256 if self.changed else self.record.spec_sha256

    @property
    def spec_key(self) -> str:
        """Key of the run's spec in the store."""
        return self.run_file(layout.SPEC) if self.changed else layout.spec(self.record.spec_sha256)

    @property
    def record_of_run(self) -> JobRecord:
        """The record with this run's own spec, and without data if the user named other data."""
        if not self.changed:
            return self.record
        other = "path" in (self.changes.get("data") or {})
        return replace(self.record, spec_sha256=self.spec.sha256, data=() if other else self.record.data)

    @property
    def interval(self) -> tuple[str, str] | None:
        """Start and end of the run's data interval, ISO 8601 in UTC, if it has one."""
        return self.inputs.interval if self.inputs else None

    @property
    def team(self) -> str:
        """Team that owns the job."""
        return self.record.team

    @property
    def name(self) -> str:
        """Name of the job within its team."""
        return self.record.name

    @property
    def owner(self) -> dict[str, Any]:
        """``[owner]`` of the spec as JSON."""
        return self.spec.owner.model_dump(mode="json")

    @property
    def run_key(self) -> str:
        """Key of the run."""
        return self.inputs.run_key if self.inputs else self.record.run_key

    @property
    def data(self) -> tuple[DataObject, ...]:
        """The objects that the run reads."""
        return self.inputs.data if self.inputs else self.record.data

    @property
    def intervals(self) -> Intervals | None:
        """The job's data intervals, if it has any."""
        schedule, has_time = self.spec.schedule, self.spec.columns.time is not None
        cron = schedule.cron if schedule else None
        return intervals_of(self.spec.data.pattern, cron, self.spec.timezone, has_time=has_time)

    @property
    def model_name(self) -> str:
        """Name of the model in MLflow and Triton."""
        return layout.model_name(self.team, self.name)

    def run_file(self, name: str) -> str:
        """Return the key of the file ``name`` in the run's folder."""
        return layout.run_folder(self.team, self.name, self.run_key) + name


PARAM = "run"

INPUTS = "inputs"
"""Key of the XCom in which ``validate`` passes on the run's inputs."""


def job_of(context: Context | Mapping[str, Any]) -> Job:
    """Return the run's job with the user's changes, and its inputs once ``validate`` has selected them."""
    job = admitted_job_of(context)
    changes = _requested_changes(context)
    if changes:
        # Imported here: most runs have no changes.
        from dmls_core.models.load import change_spec

        change = change_spec(job.spec, changes)
        if change.spec == job.spec:
            changes = {key: changes[key] for key in changes if key == "deploy"}
        job = replace(job, spec=change.spec, changes=changes, deploy=change.deploy)
    if job.intervals is None and not job.changed and job.spec.data.source is None:
        return job
    chosen = context["task_instance"].xcom_pull(task_ids=TaskId.VALIDATE.value, key=INPUTS)
    return replace(job, inputs=RunInputs.from_json(chosen) if chosen else None)


def admitted_job_of(context: Context | Mapping[str, Any]) -> Job:
    """Return the job of the current run as it was admitted."""
    dag = context["dag"]
    job = _load_job(dag.fileloc, dag.dag_id)
    return replace(job, backfill=context["dag_run"].run_type == "backfill")


def _requested_changes(context: Context | Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's changes for this run, ``{"run": {...}}`` of its configuration."""
    changes = (context["dag_run"].conf or {}).get(PARAM) or {}
    if not isinstance(changes, dict):
        raise SpecError(
            ValidationIssue("must be a table", key=PARAM, found=repr(changes)[:80], expected="an object")
        )
    return changes


def _load_job(dag_file: str, dag_id: str) -> Job:
    """Read the job of ``dag_id`` from its generated DAG file."""
    entries = read_shard(dag_file, dag_id)
    if dag_id not in entries:
        raise PlatformError(f"{Path(dag_file).stem} does not contain the job of DAG {dag_id}")
    entry = entries[dag_id]
    return Job(record=JobRecord.from_json(entry["record"]), spec=Spec.from_json(entry["spec"]))


def read_result(job: Job, store: Store) -> dict[str, Any]:
    """Return ``result.json`` of the job's run; raise ``RunnerError`` if the trainer wrote none."""
    try:
        result: dict[str, Any] = json.loads(store.get(job.run_file("result.json")))
    except ObjectMissingError as error:
        raise RunnerError(
            "the trainer exited with code 0 but wrote no result.json: see this task's log"
        ) from error
    return result


def download_run(job: Job, store: Store, folder: Path) -> Path:
    """Download every object of the job's run into ``folder`` and return it."""
    return _download(job, store, folder, "")


def download_model(job: Job, store: Store, folder: Path) -> Path:
    """Download the run's ``model/`` into ``folder``, verify its checksums, and return its path."""
    _download(job, store, folder, "model/")
    result = read_result(job, store)
    for artifact in result["artifacts"]:
        path = folder / artifact["name"]
        if artifact["name"].startswith("model/") and _sha256(path) != artifact["sha256"]:
            raise RejectedModelError(
                f"{artifact['name']} differs from the file that the trainer wrote; clear the task `search`"
            )
    return folder / "model"


def _download(job: Job, store: Store, folder: Path, prefix: str) -> Path:
    base = layout.run_folder(job.team, job.name, job.run_key)
    for file in store.list(f"{base}{prefix}"):
        path = folder / file.key.removeprefix(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        store.download(file.key, path)
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
