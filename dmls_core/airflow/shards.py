"""Read the shards: the generated DAG files, which hold all jobs of a bundle.

A shard is ``shard_NN.py`` (a few lines, the same for all) and ``shard_NN.json`` (its jobs). Those of a pinned
version are stubs without jobs: the task of a run fetches its job from the store.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from dmls_core.airflow.settings import airflow_settings, open_root
from dmls_core.store import JobRecord, Registry, layout
from dmls_core.store.snapshots import Snapshots

VERSION_FILE = "version"
"""Holds the version of the other files in its folder; written last."""


def read_shard(dag_file: str, dag_id: str | None) -> dict[str, dict[str, Any]]:
    """Return the jobs of a DAG file as ``write_dag_files`` takes them; of a pinned version only ``dag_id``.

    Raises:
        NotFoundError: the pinned version was deleted.
        StoreError: the store cannot be read.
    """
    shard = Path(dag_file).with_suffix(".json")
    entries: dict[str, dict[str, Any]] = (
        json.loads(shard.read_text()) if shard.is_file() else _fetch(shard, dag_id)
    )
    return entries


def _fetch(shard: Path, dag_id: str | None) -> dict[str, dict[str, Any]]:
    """Fetch a job, and store it for the next task of its run; without ``dag_id``, fetch the whole shard."""
    fetched = shard.with_name(f"{dag_id}.json")
    if dag_id and fetched.is_file():
        return {dag_id: json.loads(fetched.read_text())}
    settings = airflow_settings()
    store = open_root(settings)
    registry, snapshots = Registry(store), Snapshots(store)
    version = (shard.parent / VERSION_FILE).read_text()
    if not dag_id:
        records = {layout.dag_id(record.team, record.name): record for record in snapshots.read(version)}
        return {
            member: {"record": record.as_json(), "spec": registry.spec(record.spec_sha256)}
            for member, record in records.items()
            if shard_file(shard.parent, member, settings.shards).stem == shard.stem
        }
    team, name = layout.parse_dag_id(dag_id)
    record = snapshots.find(version, team, name)
    if record is None:
        return {}
    entry = {"record": record.as_json(), "spec": registry.spec(record.spec_sha256)}
    write_file(fetched, json.dumps(entry))
    return {dag_id: entry}


def dag_ids(folder: Path) -> set[str]:
    """Return the DAG ids of all shards in ``folder``."""
    return {dag_id for path in folder.glob("shard_*.json") for dag_id in json.loads(path.read_text())}


def written_jobs(folder: Path) -> list[tuple[JobRecord, dict[str, Any]]]:
    """Return the records and specs of all shards in ``folder``; none that this release cannot read."""
    jobs = []
    for path in folder.glob("shard_*.json"):
        # The DAG processor may remove a file in between.
        with suppress(ValueError, TypeError, AttributeError, KeyError, FileNotFoundError):
            jobs += [
                (JobRecord.from_json(job["record"]), job["spec"])
                for job in json.loads(path.read_text()).values()
            ]
    return jobs


def shard_file(folder: Path, dag_id: str, shards: int) -> Path:
    """Return the DAG file that ``dag_id`` belongs to."""
    return folder / shard_name(shard_number(dag_id, shards))


def is_shard(name: str) -> bool:
    """Return whether a DAG file is a shard, by its name."""
    return name.startswith("shard_") and name.endswith(".py") and name[6:-3].isdecimal()


def shard_name(number: int) -> str:
    """Return the name of a shard's DAG file."""
    return f"shard_{number:02d}.py"


def shard_number(dag_id: str, shards: int) -> int:
    """Return the number of the shard that ``dag_id`` belongs to."""
    # crc32 and not hash(): it does not depend on PYTHONHASHSEED.
    return zlib.crc32(dag_id.encode()) % shards


def write_file(path: Path, content: str) -> bool:
    """Write the file atomically if its content differs; return whether it replaced other content."""
    before = path.read_text() if path.is_file() else None
    if before == content:
        return False
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(content)
    part.replace(path)
    return before is not None
