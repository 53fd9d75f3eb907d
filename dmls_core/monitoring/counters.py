"""Counters of each job, stored as one object that is changed conditionally.

The processes that count (tasks, commands) live for seconds, so counters in memory would never exceed 1.
"""

from __future__ import annotations

import json
import logging
import random
import time
from typing import Literal

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
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

COUNTER_HELP: dict[Counter, str] = {
    "deployments": "Versions that were promoted.",
    "verification_failures": "Candidates that failed verification or could not be promoted.",
    "rollbacks": "Manual rollbacks to an earlier version.",
    "repairs": "Repairs of models for which Triton did not serve the champion.",
    "drift_checks": "Comparisons with the training data.",
    "drifts": "Comparisons in which a column had drifted.",
    "decay_checks": "Comparisons of the score on delayed labels with the score in training.",
    "decays": "Comparisons in which a version had decayed.",
}

COUNTS_FILE = "counts.json"
SCHEMA = 1

MAX_ATTEMPTS = 20
"""Attempts to change the counters while other processes change them too."""

MIN_BACKOFF, MAX_BACKOFF = 0.005, 0.5
"""Bounds of the random delay between attempts, in seconds: the first one doubles up to the second."""


def count(store: Store, team: str, job: str, name: Counter, increment: int = 1) -> None:
    """Increment one of a job's counters; if the store fails, log a warning and continue."""
    key = layout.metrics_folder(team, job) + COUNTS_FILE
    try:
        for attempt in range(MAX_ATTEMPTS):
            try:
                _increment(store, key, name, increment)
            except ConflictError:
                time.sleep(random.uniform(0, min(MAX_BACKOFF, MIN_BACKOFF * 2**attempt)))  # noqa: S311
                continue
            return
        log.warning("%s was not counted: other processes kept changing %s", name, key)
    except (StoreError, ValueError) as error:
        log.warning("%s was not counted: %s", name, error)


def _increment(store: Store, key: str, name: Counter, increment: int) -> None:
    """Increment once, or raise ConflictError if another process has changed the counters."""
    try:
        data, info = store.read(key)
    except ObjectMissingError:
        store.create(key, json.dumps({"schema": SCHEMA, "counts": {name: increment}}).encode())
        return
    counts = json.loads(data)["counts"]
    counts[name] = counts.get(name, 0) + increment
    store.replace(key, json.dumps({"schema": SCHEMA, "counts": counts}).encode(), info.etag)
