"""The queue of runs that wait for their first trainer; additional trainers of other runs leave for them.

A run is in its engine's queue from the end of ``plan`` until its first trainer starts. Airflow decides which
run is next: the queue only makes trainers notice a waiting run.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from dmls_core.store import layout
from dmls_core.store.base import Store

MIN_WAIT_SECONDS = 30.0
"""Time in the queue from which trainers leave; most searches start sooner."""

EXPIRY_SECONDS = 86_400.0
"""Time in the queue after which a run counts as canceled."""


def enqueue(store: Store, engine: str, team: str, job: str, run_key: str) -> None:
    """Add a run to the queue of an engine."""
    key = layout.waiting(engine, team, job, run_key)
    store.put(key, json.dumps({"schema": 1, "team": team, "job": job, "run_key": run_key}).encode())


def dequeue(store: Store, engine: str, team: str, job: str, run_key: str) -> None:
    """Remove a run from the queue of an engine."""
    store.delete(layout.waiting(engine, team, job, run_key))


def has_waiting_run(
    queue: Store, folder: str = "", *, min_wait: float = MIN_WAIT_SECONDS, other_than: str = ""
) -> bool:
    """Return whether a run has waited ``min_wait`` seconds in a queue.

    Args:
        queue: a store with the queue in ``folder``: that of the platform, or one with the queue as its root.
        folder: ``queue_folder`` of the engine.
        min_wait: in seconds.
        other_than: key of a run that does not count.
    """
    now = datetime.now(UTC)
    return any(
        min_wait <= (now - info.modified).total_seconds() < EXPIRY_SECONDS
        for info in queue.list(folder)
        if not (other_than and info.key.endswith(f".{other_than}.json"))
    )
