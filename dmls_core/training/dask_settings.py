"""Dask's settings for a run's own processes."""

from __future__ import annotations

from typing import Any

TERMINATE = 0.95
"""Share of its limit at which Dask ends a worker."""

LIBRARY_PAGES = 100 << 20
"""Pages of library files in a node: Dask's limit counts them, those of a run and of a container do not."""

CONFIGURATION: dict[str, Any] = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": TERMINATE,
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.daemon": True,
    "distributed.admin.tick.limit": "60s",
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask's settings for the run's own processes. A node holds its rows in memory, or is ended: spilled rows
would be in memory again during a fit. The rows stay where they were sent. The web servers, which Dask always
starts, have no pages."""
