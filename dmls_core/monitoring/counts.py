"""Counters of each job that outlive the processes that count: an object in the store, changed conditionally.

A task's process lives for seconds and a command's for less, so that a metrics library, which counts within a
process, would tell of each of them 1 and nothing more.
"""

from __future__ import annotations

import json
import logging
import random
import time
from typing import Literal

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.monitoring.families import Family
from dmls_core.store import Store, layout

log = logging.getLogger(__name__)

Counter = Literal[
    "deployments",
    "verification_failures",
    "rollbacks",
    "repairs",
    "drift_checks",
    "drifts",
    "decay_checks",
    "decays",
]

TEXTS: dict[Counter, str] = {
    "deployments": "Versions that went live.",
    "verification_failures": "Candidates that did not prove themselves, or could not go live.",
    "rollbacks": "Returns to an earlier version by hand.",
    "repairs": "Times that Triton was made to serve the champion again.",
    "drift_checks": "Comparisons with the training data.",
    "drifts": "Comparisons in which a column had drifted.",
    "decay_checks": "Comparisons of late labels with the score at training.",
    "decays": "Comparisons in which a version had decayed.",
}

COUNTS = "counts.json"
SCHEMA = 1

TRIES = 20
"""How often a change is tried while others change the same counters."""

FIRST_WAIT, LONGEST_WAIT = 0.005, 0.5
"""Seconds between two tries at most: twice as long each time, and drawn, so that two don't meet for ever."""


def count(store: Store, team: str, job: str, name: Counter, more: int = 1) -> None:
    """Add to one of a job's counters. A store that fails costs a count, not what was counted."""
    key = layout.metrics_folder(team, job) + COUNTS
    try:
        for number in range(TRIES):
            try:
                _add(store, key, name, more)
            except ConflictError:
                time.sleep(random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**number)))  # noqa: S311
                continue
            return
        log.warning("%s was not counted: others kept changing %s", name, key)
    except (StoreError, ValueError) as error:
        log.warning("%s was not counted: %s", name, error)


def _add(store: Store, key: str, name: Counter, more: int) -> None:
    """Add once.

    Raises:
        ConflictError: somebody else changed the counters meanwhile.
    """
    try:
        data, info = store.read(key)
    except ObjectMissingError:
        store.create(key, json.dumps({"schema": SCHEMA, "counts": {name: more}}).encode())
        return
    counts = json.loads(data)["counts"]
    counts[name] = counts.get(name, 0) + more
    store.replace(key, json.dumps({"schema": SCHEMA, "counts": counts}).encode(), info.etag)


def count_families(data: bytes, team: str, job: str) -> list[Family]:
    """Return a job's counters, each of which is there even at 0, from the content of ``counts.json``."""
    counts = json.loads(data)["counts"]
    labels = {"team": team, "job": job}
    return [
        Family(f"dmls_{name}_total", "counter", text).add(counts.get(name, 0), labels)
        for name, text in TEXTS.items()
    ]
