"""Copy the trainer's progress into ``_status`` while it runs."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Self

from dmls_core.airflow.job import Job
from dmls_core.airflow.status import StatusReporter
from dmls_core.errors import DmlsError
from dmls_core.store import Store

INTERVAL = 2.0
"""Seconds between two reads of ``progress.json``."""


class ProgressWatcher:
    """Copy the trainer's ``progress.json`` into ``_status`` from a thread, while the block runs."""

    def __init__(self, job: Job, store: Store, reporter: StatusReporter) -> None:
        self._job = job
        self._store = store
        self._reporter = reporter
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dmls-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        last = ""
        while not self._done.wait(INTERVAL):
            try:
                progress = json.loads(self._store.get(self._job.run_file("progress.json")))
            except (DmlsError, ValueError):
                # Not written yet, or the store is unavailable: the next read may succeed.
                continue
            message = describe(progress)
            if message != last:
                self._reporter.running(message)
                last = message


def describe(progress: dict[str, object]) -> str:
    """Return the trainer's progress in a few words: ``training 3/5, best so far 0.9583``."""
    state = progress.get("state")
    if state != "searching":
        return str(progress.get("message") or state)
    best = progress.get("best")
    text = f"training {progress.get('finished')}/{progress.get('total')}"
    return f"{text}, best so far {best:.4f}" if isinstance(best, float) else text
