"""Write the registry's jobs as a few DAG files: shards chosen by a stable hash.

A shard is ``shard_NN.py`` (a few lines, the same for all) and ``shard_NN.json`` (its jobs). A file is
rewritten only when its content changes, so that Airflow parses again only what changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

STATIC_DAGS = "static"
"""Prefix of the files copied from ``dags/``."""

SHARD = '''"""DMLS jobs, shard {number:02d}: an Airflow DAG file made by DMLS. Content {digest}."""

import airflow.sdk  # imported before the parser forks

from dmls_core.airflow.factory import load_shard

globals().update(load_shard(__file__))
'''

REJECTED = '''"""A job that DMLS could not read: this Airflow DAG file only says why."""

raise ValueError({message!r})
'''


def write_dag_files(
    folder: Path,
    jobs: Mapping[str, dict[str, Any]],
    broken: Mapping[str, str],
    *,
    shards: int,
    static: Iterable[Path] = (),
) -> set[Path]:
    """Bring ``folder`` to the given set of jobs; files that stay the same are not touched.

    Args:
        folder: where Airflow looks for DAG files.
        jobs: DAG id -> ``{"record": ..., "spec": ...}``.
        broken: DAG id -> message, for jobs whose entry cannot be used.
        shards: number of shards.
        static: DAG files to copy as they are.

    Returns:
        the DAG files that were there and have another content now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, str] = {path.name: path.read_text() for path in static}
    for number, members in _shards(jobs, shards).items():
        content = json.dumps(members, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        wanted[f"shard_{number:02d}.json"] = content
        wanted[f"shard_{number:02d}.py"] = SHARD.format(number=number, digest=digest)
    for dag_id, message in broken.items():
        name = hashlib.sha256(dag_id.encode()).hexdigest()[:16]
        wanted[f"rejected_{name}.py"] = REJECTED.format(message=message)
    # A shard's jobs are in place before the file that reads them.
    in_order = sorted(wanted, key=lambda n: (not n.endswith(".json"), n))
    changed = {folder / name for name in in_order if _write_if_changed(folder / name, wanted[name])}
    for path in folder.iterdir():
        if path.suffix in (".py", ".json") and path.name not in wanted:
            path.unlink()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return {path for path in changed if path.suffix == ".py"}


def dag_ids(folder: Path) -> set[str]:
    """Return the DAG ids of all shards in ``folder``."""
    return {dag_id for path in folder.glob("shard_*.json") for dag_id in json.loads(path.read_text())}


def shard_file(folder: Path, dag_id: str, shards: int) -> Path:
    """Return the DAG file that holds, or held, ``dag_id``."""
    return folder / f"shard_{_number(dag_id, shards):02d}.py"


def _number(dag_id: str, shards: int) -> int:
    return zlib.crc32(dag_id.encode()) % shards


def _shards(jobs: Mapping[str, dict[str, Any]], count: int) -> dict[int, dict[str, Any]]:
    """Spread jobs by crc32 of their DAG id, which no hash seed changes."""
    members: dict[int, dict[str, Any]] = {}
    for dag_id in sorted(jobs):
        members.setdefault(_number(dag_id, count), {})[dag_id] = jobs[dag_id]
    return members


def _write_if_changed(path: Path, content: str) -> bool:
    """Bring a file to its content; say whether another one was there."""
    before = path.read_text() if path.is_file() else None
    if before == content:
        return False
    part = path.with_name(path.name + ".part")
    part.write_text(content)
    part.replace(path)
    return before is not None
