"""A job as its DAG knows it: one entry of the shard's JSON beside the DAG file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow.sdk import Context

from dmls_core.airflow.jobs.grid import Grid, grid_of
from dmls_core.airflow.jobs.inputs import RunInputs
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import PlatformError, SpecError, ValidationIssue
from dmls_core.spec import Spec
from dmls_core.store import DataObject, JobRecord, layout


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted job at one version, and which of its runs this is.

    Attributes:
        record: the version in the registry.
        spec: its spec; of a run that a user changed something for, the run's own.
        inputs: what the run chose, where data is chosen by interval or the run is not as the job says.
        backfill: whether the run was asked for by a backfill.
        changes: what a user asked for in this run alone, as it was given.
        deploy: whether the user asked for the deployment of what the run makes.
    """

    record: JobRecord
    spec: Spec
    inputs: RunInputs | None = None
    backfill: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    deploy: bool = False

    @property
    def changed(self) -> bool:
        """Whether the run's spec is not the job's."""
        return bool(self.changes.keys() - {"deploy"})

    @property
    def spec_sha256(self) -> str:
        """Name of the run's spec."""
        return self.spec.sha256 if self.changed else self.record.spec_sha256

    @property
    def spec_key(self) -> str:
        """Key of the run's spec in the store."""
        return self.run_file(layout.SPEC) if self.changed else layout.spec(self.record.spec_sha256)

    @property
    def record_of_run(self) -> JobRecord:
        """The record as this run has it: its own spec, and no data where the user named other data."""
        if not self.changed:
            return self.record
        other = "path" in (self.changes.get("data") or {})
        return replace(self.record, spec_sha256=self.spec.sha256, data=() if other else self.record.data)

    @property
    def interval(self) -> tuple[str, str] | None:
        """Ends of the interval that the run is for, ISO 8601 in UTC, if it is for one."""
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
        """``[owner]`` of the spec, as JSON."""
        return self.spec.owner.model_dump(mode="json")

    @property
    def run_key(self) -> str:
        """Key of the run."""
        return self.inputs.run_key if self.inputs else self.record.run_key

    @property
    def data(self) -> tuple[DataObject, ...]:
        """What the run reads."""
        return self.inputs.data if self.inputs else self.record.data

    @property
    def grid(self) -> Grid | None:
        """The intervals of the job's data, if it has any."""
        schedule, has_time = self.spec.schedule, self.spec.columns.time is not None
        cron = schedule.cron if schedule else None
        return grid_of(self.spec.data.path, cron, self.spec.timezone, has_time=has_time)

    @property
    def model_name(self) -> str:
        """Name of the model in MLflow and Triton."""
        return layout.model_name(self.team, self.name)

    def run_file(self, name: str) -> str:
        """Return the key of the file ``name`` in the run's folder."""
        return layout.run_folder(self.team, self.name, self.run_key) + name


PARAM = "run"
"""Name of the one Param of a job's DAG."""

INPUTS = "inputs"
"""Key of the XCom by which the first task tells the others what the run reads."""


def job_of(context: Context | Mapping[str, Any]) -> Job:
    """Return the job of the run at hand, with what the run chose, if it has chosen by now.

    Raises:
        SpecError: what a user changed for this run does not make a spec.
    """
    job = unchanged_job_of(context)
    changes = asked_changes(context)
    if changes:
        # Here, since most runs are as their job says.
        from dmls_core.models.load import change_spec

        change = change_spec(job.spec, changes)
        if change.spec == job.spec:
            changes = {key: changes[key] for key in changes if key == "deploy"}
        job = replace(job, spec=change.spec, changes=changes, deploy=change.deploy)
    if job.grid is None and not job.changed:
        return job
    chosen = context["task_instance"].xcom_pull(task_ids=TaskId.VALIDATE.value, key=INPUTS)
    return replace(job, inputs=RunInputs.from_json(chosen) if chosen else None)


def unchanged_job_of(context: Context | Mapping[str, Any]) -> Job:
    """Return the job of the run at hand as it was admitted."""
    dag = context["dag"]
    job = load_job(dag.fileloc, dag.dag_id)
    return replace(job, backfill=context["dag_run"].run_type == "backfill")


def asked_changes(context: Context | Mapping[str, Any]) -> dict[str, Any]:
    """Return what the user who started the run changed for it: ``{"run": {...}}`` of its configuration.

    Raises:
        SpecError: it is no table.
    """
    changes = (context["dag_run"].conf or {}).get(PARAM) or {}
    if not isinstance(changes, dict):
        raise SpecError(
            ValidationIssue("must be a table", key=PARAM, found=repr(changes)[:80], expected="an object")
        )
    return changes


def load_job(dag_file: str, dag_id: str) -> Job:
    """Read the job of ``dag_id`` from the JSON beside the generated DAG file.

    Raises:
        PlatformError: the file has no such job.
    """
    shard = Path(dag_file).with_suffix(".json")
    entries: dict[str, dict[str, Any]] = json.loads(shard.read_text())
    if dag_id not in entries:
        raise PlatformError(f"{shard.name} has no job for DAG {dag_id}")
    entry = entries[dag_id]
    return Job(record=JobRecord.from_json(entry["record"]), spec=Spec.from_json(entry["spec"]))
