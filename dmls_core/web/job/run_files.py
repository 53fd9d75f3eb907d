"""What a run's trainer has left in the store: how far it is, its trials, its result, its report."""

from __future__ import annotations

import json
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.store import ObjectInfo, Store, layout

THREADS = 10
MAX_BYTES = 32 << 20
KEPT_RUNS = 64
MAX_TRIALS = 2000

RUNNER = "runner.json"
PAGES = (layout.REPORT, layout.DATA_DOCS)
COLUMNS = ("number", "state", "model", "engine", "params", "value", "seconds", "same_as", "message")
"""What is told of a trial; surfaces and courses, which are large, stay in the report."""

_trials: OrderedDict[str, dict[str, tuple[str, dict[str, Any]]]] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True, slots=True)
class RunFiles:
    """A run's folder.

    Attributes:
        progress: ``progress.json``, if there is one.
        result: ``result.json``, once it is finished.
        error: ``error.json``, where it failed.
        runner: how its trainer was run.
        trials: the trials that have ended, by number.
        has_report: whether its report is there.
        has_validation: whether Great Expectations' Data Docs are.
    """

    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    runner: dict[str, Any] | None
    trials: list[dict[str, Any]]
    has_report: bool = False
    has_validation: bool = False

    @property
    def seconds_left(self) -> float | None:
        """How long the search will go on, by the mean of its trials; ``None`` where that is not known."""
        if self.result or not self.progress or self.progress.get("state") != "searching":
            return None
        left = int(self.progress.get("total", 0)) - int(self.progress.get("finished", 0))
        paid = [trial["seconds"] for trial in self.trials if trial.get("same_as") is None]
        return left * sum(paid) / len(paid) if paid and left >= 0 else None


def read_run_files(store: Store, team: str, name: str, run_key: str) -> RunFiles:
    """Read a run's folder; trials that were read before are not read again.

    Raises:
        StoreError: the store does not answer.
    """
    folder = layout.run_folder(team, name, run_key)
    names = (layout.PROGRESS, layout.RESULT, layout.ERROR, RUNNER)
    with ThreadPoolExecutor(THREADS) as threads:
        report, validation = (threads.submit(store.head, folder + file) for file in PAGES)
        progress, result, error, runner = threads.map(lambda file: read_json(store, folder + file), names)
        trials = _read_trials(store, folder, threads)
        pages = {"has_report": report.result() is not None, "has_validation": validation.result() is not None}
        return RunFiles(progress, result, error, runner, trials, **pages)


def read_json(store: Store, key: str) -> dict[str, Any] | None:
    """Return an object's JSON; ``None`` where there is none, or nothing that can be read.

    Raises:
        StoreError: the store does not answer.
    """
    try:
        content = json.loads(store.read(key, limit=MAX_BYTES)[0])
    except (ObjectMissingError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _read_trials(store: Store, folder: str, threads: ThreadPoolExecutor) -> list[dict[str, Any]]:
    with _lock:
        known = dict(_trials.get(folder, {}))
    listed = sorted(store.list(folder + layout.TRIALS), key=lambda info: info.key)[:MAX_TRIALS]
    changed = [info for info in listed if known.get(info.key, ("", {}))[0] != info.etag]

    def read(info: ObjectInfo) -> dict[str, Any] | None:
        return read_json(store, info.key)

    for info, trial in zip(changed, threads.map(read, changed), strict=True):
        if trial:
            known[info.key] = (info.etag, {column: trial.get(column) for column in COLUMNS})
    with _lock:
        _trials[folder] = known
        _trials.move_to_end(folder)
        while len(_trials) > KEPT_RUNS:
            _trials.popitem(last=False)
    return sorted((trial for _, trial in known.values()), key=lambda trial: int(trial["number"] or 0))
