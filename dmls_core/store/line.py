"""Runs whose search waits for its first trainer: the extra trainers of other runs leave for them.

A run stands in the line of its engine from the moment that it is planned until its leader starts. Airflow
alone says who is next; the line only tells trainers that somebody is waiting at all.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from dmls_core.store import layout
from dmls_core.store.base import Store

PATIENCE = 30.0
"""Seconds in line before anybody leaves: most searches start at once."""

FORGOTTEN = 86_400.0
"""Seconds after which a run is not believed to be waiting: it was cancelled, or removed."""


def stand_in_line(store: Store, engine: str, team: str, job: str, run_key: str) -> None:
    """Note that a run waits for its first trainer."""
    place = layout.waiting(engine, team, job, run_key)
    store.put(place, json.dumps({"schema": 1, "team": team, "job": job, "run_key": run_key}).encode())


def leave_line(store: Store, engine: str, team: str, job: str, run_key: str) -> None:
    """Note that a run waits no more."""
    store.delete(layout.waiting(engine, team, job, run_key))


def somebody_waits(line: Store, *, patience: float = PATIENCE) -> bool:
    """Say whether a run has been waiting for a while.

    Args:
        line: a store at the folder of one engine's line.
        patience: seconds that count as no wait.
    """
    now = datetime.now(UTC)
    return any(patience <= (now - info.modified).total_seconds() < FORGOTTEN for info in line.list(""))
