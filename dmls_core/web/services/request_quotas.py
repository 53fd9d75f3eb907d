"""Quotas of teams for prediction requests, counted in the memory of this process of the API server."""

from __future__ import annotations

import threading
import time
from collections import deque

from dmls_core.airflow.settings import airflow_settings

SECONDS = 60.0

_lock = threading.Lock()
_answered: dict[str, deque[float]] = {}
"""Team -> times of its latest requests, as many as its quota; idle teams are dropped."""


def seconds_over_quota(team: str) -> float:
    """Count a prediction request; return 0, or the seconds until the team may send one if it is refused."""
    quotas = airflow_settings().requests_per_minute
    quota = quotas.get(team, quotas.get("*"))
    if quota is None:
        return 0.0
    now = time.monotonic()
    with _lock:
        if team not in _answered:
            for idle in [name for name, times in _answered.items() if times[-1] + SECONDS <= now]:
                del _answered[idle]
        times = _answered.setdefault(team, deque(maxlen=quota))
        if len(times) == quota and (left := times[0] + SECONDS - now) > 0:
            return left
        times.append(now)
        return 0.0
