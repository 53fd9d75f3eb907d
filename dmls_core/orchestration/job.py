"""A job as its DAG knows it: one entry of the shard's JSON beside the DAG file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow.sdk import Context

from dmls_core.errors import PlatformError
from dmls_core.orchestration.grid import Grid, grid_of
from dmls_core.orchestration.inputs import RunInputs
from dmls_core.spec import Spec
from dmls_core.store import DataObject, JobRecord, layout


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted job at one version, and which of its runs this is.

    Attributes:
        record: the version in the registry.
        spec: its spec.
        inputs: what the run chose, where data is chosen by interval.
        backfill: whether the run was asked for by a backfill.
    """

    record: JobRecord
    spec: Spec
    inputs: RunInputs | None = None
    backfill: bool = False

    @property
    def team(self) -> str:
        """Team that owns the job."""
        return self.record.team

    @property
    def name(self) -> str:
        """Name of the job within its team."""
        return self.record.name

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


INPUTS = "inputs"
"""Key of the XCom by which the first task tells the others what the run reads."""


def job_of(context: Context | Mapping[str, Any]) -> Job:
    """Return the job of the run at hand, with what the run chose, if it has chosen by now."""
    dag, task = context["dag"], context["task_instance"]
    job = load_job(dag.fileloc, dag.dag_id)
    inputs = None
    if job.grid is not None:
        chosen = task.xcom_pull(task_ids="validate", key=INPUTS)
        inputs = RunInputs.from_json(chosen) if chosen else None
    return replace(job, inputs=inputs, backfill=context["dag_run"].run_type == "backfill")


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
