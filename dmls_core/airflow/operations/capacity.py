"""The capacity plan of this platform: its slots, from Airflow's pools, and the history in its store."""

from __future__ import annotations

import threading
import time

from dmls_core.airflow import database
from dmls_core.airflow.database import Session
from dmls_core.airflow.runners.trainer import CPU_POOL, GPU_POOL
from dmls_core.airflow.settings import airflow_settings, open_root
from dmls_core.monitoring.capacity import CapacityPlan, plan_capacity
from dmls_core.monitoring.capacity_history import History, read_history

_CACHE_SECONDS = 300.0
"""How long the history is reused: it is one listing of all runs, and thousands of results."""

_lock = threading.Lock()
_cached: tuple[float, History] | None = None


def plan_platform(session: Session, *, jobs: float = 1.0, rows: float = 1.0) -> CapacityPlan:
    """Return what the platform needs for ``jobs`` times its jobs and ``rows`` times their rows.

    Raises:
        StoreError: the store does not answer.
    """
    history, settings = _history(), airflow_settings()
    pools = database.pool_slots(session, ours=True)
    return plan_capacity(
        history.runs,
        history.served_bytes,
        {"cpu": pools.get(CPU_POOL, 0), "gpu": pools.get(GPU_POOL, 0)},
        history.end,
        jobs=jobs,
        rows=rows,
        requests=history.requests,
        hourly_price=settings.hourly_price,
        gpu_hourly_price=settings.gpu_hourly_price,
    )


def _history() -> History:
    global _cached
    with _lock:
        if _cached is None or time.monotonic() - _cached[0] > _CACHE_SECONDS:
            _cached = time.monotonic(), read_history(open_root(airflow_settings()))
        return _cached[1]
