"""Snapshots of the registry: a tree of job records addressed by content, so that a change writes a few kB.

A node is ``{"jobs": [records]}`` with at most ``LEAF_JOBS`` records, or ``{"nodes": {digit: node}}`` with the
nodes of the jobs whose hashed name has that hexadecimal digit at the node's depth. The version of a snapshot
is the name of its root. Earlier releases wrote one ``jobs`` node of all records, which can still be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from dmls_core.errors import NotFoundError, ObjectMissingError
from dmls_core.store import layout
from dmls_core.store.base import Store
from dmls_core.store.registry import JobRecord

LEAF_JOBS = 64
"""Most records in a node, about 40 kB of JSON."""

_TREE = "n"
"""First letter of the names of nodes that have nodes."""

KEEP = timedelta(days=90)
"""How long a snapshot stays after the registry has changed: a run that is cleared later cannot start."""

_RENEW = timedelta(days=1)
"""Age from which a node that is needed is written again, so that it is not deleted as old."""

_THREADS = 16


class Snapshots:
    """Immutable states of the whole registry. A node is written after the nodes below it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._current: set[str] = set()  # nodes of the last snapshot that this object wrote

    def write(self, records: Sequence[JobRecord]) -> str:
        """Write a snapshot of these records, each of another job, and return its version."""
        version, nodes = build(records)
        levels: list[list[str]] = []
        level = [version]
        with ThreadPoolExecutor(_THREADS) as threads:
            while level:
                unknown = [name for name in level if name not in self._current]
                stays = threads.map(self._stays, unknown)
                levels.append([name for name, there in zip(unknown, stays, strict=True) if not there])
                level = [below for name in levels[-1] for below in _below(json.loads(nodes[name]))]
            for missing in reversed(levels):
                list(threads.map(lambda name: self.store.put(layout.snapshot(name), nodes[name]), missing))
        self._current = set(nodes)
        return version

    def read(self, version: str) -> list[JobRecord]:
        """Return all records of a snapshot, in any order.

        Raises:
            NotFoundError: the snapshot was deleted.
        """
        records: list[JobRecord] = []
        level = [version]
        with ThreadPoolExecutor(_THREADS) as threads:
            while level:
                documents = list(threads.map(self._node, level))
                records += [JobRecord.from_json(job) for node in documents for job in node.get("jobs", ())]
                level = [below for node in documents for below in _below(node)]
        return records

    def find(self, version: str, team: str, name: str) -> JobRecord | None:
        """Return the record of a job in a snapshot, or ``None``; read only the nodes on its path.

        Raises:
            NotFoundError: the snapshot was deleted.
        """
        node = self._node(version)
        for digit in _digits(team, name):
            if "nodes" not in node:
                break
            if digit not in node["nodes"]:
                return None
            node = self._node(node["nodes"][digit])
        matching = [job for job in node["jobs"] if (job["team"], job["name"]) == (team, name)]
        return JobRecord.from_json(matching[0]) if matching else None

    def delete_old(self, current: Sequence[JobRecord], now: datetime) -> int:
        """Delete what no snapshot of the last ``KEEP`` has; return the number of deleted objects.

        To be called at least once in ``_RENEW``: it writes older nodes of the snapshot of ``current``, the
        registry's records, again. So a node's age says how long ago a snapshot had it, and none is read.
        """
        _, nodes = build(current)
        ages = {
            info.key.removeprefix(layout.SNAPSHOTS).removesuffix(".json"): now - info.modified
            for info in self.store.list(layout.SNAPSHOTS)
        }
        aging = [name for name in nodes if name in ages and ages[name] >= _RENEW]
        old = [name for name, age in ages.items() if age > KEEP + 2 * _RENEW and name not in nodes]
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda name: self.store.put(layout.snapshot(name), nodes[name]), aging))
            list(threads.map(lambda name: self.store.delete(layout.snapshot(name)), old))
        return len(old)

    def _stays(self, name: str) -> bool:
        """Return whether a node is in the store, with all nodes below it, and too young to be deleted."""
        info = self.store.head(layout.snapshot(name))
        return info is not None and datetime.now(UTC) - info.modified < _RENEW

    def _node(self, version: str) -> dict[str, Any]:
        try:
            node: dict[str, Any] = json.loads(self.store.get(layout.snapshot(version)))
        except ObjectMissingError as error:
            raise NotFoundError(
                f"snapshot {version} of the registry was deleted, {KEEP.days} days after its last use: "
                "start a new run instead of clearing an old one"
            ) from error
        return node


def build(records: Sequence[JobRecord]) -> tuple[str, dict[str, bytes]]:
    """Return the version of the snapshot of these records, and the content of its nodes by name."""
    nodes: dict[str, bytes] = {}
    jobs = [(_digits(record.team, record.name), record.as_json()) for record in records]
    jobs.sort(key=lambda job: (job[1]["team"], job[1]["name"]))
    return _build(jobs, 0, nodes), nodes


def _build(jobs: list[tuple[str, dict[str, Any]]], depth: int, nodes: dict[str, bytes]) -> str:
    node: dict[str, Any]
    if len(jobs) <= LEAF_JOBS:
        letter, node = "", {"jobs": [job for _, job in jobs]}
    else:
        branches: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for job in jobs:
            branches.setdefault(job[0][depth], []).append(job)
        letter = _TREE
        node = {"nodes": {digit: _build(branch, depth + 1, nodes) for digit, branch in branches.items()}}
    content = json.dumps({"schema": 1, **node}, sort_keys=True).encode()
    name = letter + hashlib.sha256(content).hexdigest()[:16]
    nodes[name] = content
    return name


def _below(node: dict[str, Any]) -> list[str]:
    return list(node.get("nodes", {}).values())


def _digits(team: str, name: str) -> str:
    """Return the hexadecimal digits that lead to a job's record."""
    return hashlib.sha256(layout.dag_id(team, name).encode()).hexdigest()
