"""Read a run's files from the store."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dmls_core.airflow.job import Job
from dmls_core.errors import ObjectMissingError, RunnerError
from dmls_core.store import Store, layout


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
            raise RunnerError(
                f"{artifact['name']} differs from the file that the trainer wrote; clear the task `search`"
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
