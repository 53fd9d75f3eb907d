"""The history that a capacity plan replays: results of finished runs, and the models that are served."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dmls_core.errors import DmlsError
from dmls_core.monitoring.capacity import PastRun
from dmls_core.monitoring.request_counts import Requests, read_requests
from dmls_core.store import Registry, Store, layout

logger = logging.getLogger(__name__)

_DAYS = 28
"""Days of history, in which weekly schedules have four runs."""

_MAX_RUNS = 20_000
"""Runs that are read, the latest ones."""

_THREADS = 16


class History(NamedTuple):
    """What the last days had.

    Attributes:
        runs: runs that finished.
        served_bytes: size of the model of each job that serves one.
        end: now.
        requests: requests to Triton, by hour.
    """

    runs: list[PastRun]
    served_bytes: list[int]
    end: datetime
    requests: dict[datetime, Requests]


class _Folder:
    """A run's folder by its listing: its size, its model's size, and when its result was written."""

    __slots__ = ("finished", "model_bytes", "result", "spec", "stored_bytes")

    def __init__(self) -> None:
        self.stored_bytes = self.model_bytes = 0
        self.finished: datetime | None = None
        self.result = self.spec = ""


def read_history(store: Store, days: int = _DAYS) -> History:
    """Read the results of the last ``days`` days; a damaged result is left out, with a warning.

    Raises:
        StoreError: the store does not answer.
    """
    end = datetime.now(UTC)
    since = end - timedelta(days=days)
    folders = _list_runs(store)
    recent = [(where, it) for where, it in folders.items() if it.finished and it.finished >= since]
    recent.sort(key=lambda item: item[1].finished or since)
    specs = _Specs(store)
    with ThreadPoolExecutor(_THREADS) as threads:
        past_runs = threads.map(lambda item: _read_run(store, specs, *item), recent[-_MAX_RUNS:])
        runs = [run for run in past_runs if run]
    return History(runs, _served_bytes(store, folders), end, read_requests(store, since))


Where = tuple[str, str]
"""``<team>/<job>`` and the run's key."""


def _list_runs(store: Store) -> dict[Where, _Folder]:
    folders: dict[Where, _Folder] = defaultdict(_Folder)
    for info in store.list(layout.RUNS):
        team, _, rest = info.key.removeprefix(layout.RUNS).partition("/")
        job, _, rest = rest.partition("/")
        key, _, file = rest.partition("/")
        folder = folders[f"{team}/{job}", key]
        folder.stored_bytes += info.size
        if file.startswith(layout.MODEL):
            folder.model_bytes += info.size
        elif file == layout.RESULT:
            folder.finished, folder.result = info.modified, info.key
        elif file == layout.SPEC:
            folder.spec = info.key
    return folders


class _Specs:
    """Accepted specs, which many runs share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trainers: dict[str, int] = {}

    def trainers(self, folder: _Folder, sha256: str) -> int:
        """Return the trainers that a run asked for; 1 for ``auto``, whose helpers use idle slots."""
        if folder.spec:
            return _workers(json.loads(self._store.get(folder.spec)))
        if sha256 not in self._trainers:
            self._trainers[sha256] = _workers(Registry(self._store).spec(sha256))
        return self._trainers[sha256]


def _workers(spec: dict[str, Any]) -> int:
    workers = spec.get("search", {}).get("workers")
    return workers if isinstance(workers, int) else 1


def _read_run(store: Store, specs: _Specs, where: Where, folder: _Folder) -> PastRun | None:
    try:
        result: dict[str, Any] = json.loads(store.get(folder.result))
        seconds = float(result["seconds"]["total"])
        return PastRun(
            job=where[0],
            started=datetime.fromisoformat(result["finished"]) - timedelta(seconds=seconds),
            seconds=seconds,
            device="gpu" if result["engine"] == "gpu" else "cpu",
            trainers=specs.trainers(folder, result["spec_sha256"]),
            peak_bytes=int(result.get("peak_memory_bytes") or 0),
            stored_bytes=folder.stored_bytes,
        )
    except (DmlsError, ValueError, KeyError, TypeError, RecursionError) as error:
        logger.warning("capacity: %s is left out: %s", folder.result, error)
        return None


def _served_bytes(store: Store, folders: dict[Where, _Folder]) -> list[int]:
    """Return the sizes of the models of the jobs that serve one: of each job's latest."""
    latest: dict[str, _Folder] = {}
    for (job, _), folder in folders.items():
        if folder.finished and folder.model_bytes:
            other = latest.get(job)
            if not other or not other.finished or other.finished < folder.finished:
                latest[job] = folder
    served = [
        info.key.removeprefix(layout.SERVED).removesuffix(".json") for info in store.list(layout.SERVED)
    ]
    return [latest[job].model_bytes if job in latest else 0 for job in served]
