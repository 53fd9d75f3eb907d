"""A job as its DAG knows it: one entry of the shard's JSON beside the DAG file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmls_core.errors import PlatformError
from dmls_core.spec import Spec
from dmls_core.store import JobRecord, layout


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted job at one version: its record in the registry and its spec."""

    record: JobRecord
    spec: Spec

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
        """Key of the run that this version of the job makes."""
        return self.record.run_key

    @property
    def model_name(self) -> str:
        """Name of the model in MLflow and Triton."""
        return layout.model_name(self.team, self.name)

    def run_file(self, name: str) -> str:
        """Return the key of the file ``name`` in the run's folder."""
        return layout.run_folder(self.team, self.name, self.run_key) + name


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
