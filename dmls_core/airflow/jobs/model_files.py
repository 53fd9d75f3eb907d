"""Copy a run's files from the store to the worker's disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from dmls_core.airflow.jobs.job import Job
from dmls_core.errors import RunnerError
from dmls_core.store import Store, layout


def download_run(job: Job, store: Store, folder: Path) -> Path:
    """Copy every object of the job's run into ``folder`` and return it."""
    return _download(job, store, folder, "")


def download_model(job: Job, store: Store, folder: Path) -> Path:
    """Copy the run's ``model/`` into ``folder``, check it against ``result.json``, and return its path.

    Raises:
        RunnerError: a file is not the one that the trainer wrote.
    """
    _download(job, store, folder, "model/")
    result = json.loads(store.get(job.run_file("result.json")))
    for artifact in result["artifacts"]:
        path = folder / artifact["name"]
        if artifact["name"].startswith("model/") and _sha256(path) != artifact["sha256"]:
            raise RunnerError(
                f"{artifact['name']} is not the file that the trainer wrote; clear the task `search`"
            )
    return folder / "model"


def _download(job: Job, store: Store, folder: Path, prefix: str) -> Path:
    base = layout.run_folder(job.team, job.name, job.run_key)
    for found in store.list(f"{base}{prefix}"):
        path = folder / found.key.removeprefix(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        store.download(found.key, path)
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
