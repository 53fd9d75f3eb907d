"""The queue of runs that wait for their first trainer; additional trainers of other runs leave for them.

A run is in its engine's queue from the end of ``plan`` until its first trainer starts. Airflow decides which
run is next: the queue only shows triggers, which cannot read Airflow's database, that a run waits.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from dmls_core.store import layout
from dmls_core.store.base import Store

EXPIRY_SECONDS = 86_400.0
"""Time in the queue after which a run counts as canceled."""


def enqueue(store: Store, engine: str, team: str, job: str, run_key: str) -> None:
    """Add a run to the queue of an engine."""
    key = layout.waiting(engine, team, job, run_key)
    store.put(key, json.dumps({"schema": 1, "team": team, "job": job, "run_key": run_key}).encode())


def dequeue(store: Store, engine: str, team: str, job: str, run_key: str) -> None:
    """Remove a run from the queue of an engine."""
    store.delete(layout.waiting(engine, team, job, run_key))


def waiting_since(store: Store, engine: str) -> dict[str, float]:
    """Return since when each run waits in the queue of an engine, in seconds since 1970, by its run key."""
    now = datetime.now(UTC)
    return {
        info.key.rsplit(".", 2)[-2]: info.modified.timestamp()
        for info in store.list(layout.queue_folder(engine))
        if (now - info.modified).total_seconds() < EXPIRY_SECONDS
    }
