"""End a service of Airflow whose clock was set back, so that its supervisor starts it with the new time.

By the wall clock, a DAG processor remembers when it last read each bundle and each file, and a scheduler and
a triggerer when they last wrote their heartbeat. Once the clock is a day behind these dates, no new job gets
its DAG for a day, and a scheduler that works looks dead. Only the process itself can forget them.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

from airflow.listeners import hookimpl

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0

_TOLERANCE_SECONDS = 60.0
"""A clock that was set back by less makes nothing wait for long."""


class ClockGuard:
    """Listener that watches the clock of each scheduler, triggerer and DAG processor."""

    @hookimpl
    def on_starting(self) -> None:
        """Watch from a thread until the process ends."""
        threading.Thread(target=_watch, name="dmls-clock-guard", daemon=True).start()


def _watch() -> None:
    """Wait until the wall clock is set back; then end this process as an operator would."""
    before = _ahead()
    while (now := _ahead()) > before - _TOLERANCE_SECONDS:
        before = now
        time.sleep(LOOK_SECONDS)
    log.critical(
        "The system clock moved back %.0f s. Stopping so that the supervisor restarts this service.",
        before - now,
    )
    os.kill(os.getpid(), signal.SIGTERM)


def _ahead() -> float:
    """Return by how many seconds the wall clock is ahead of the monotonic clock."""
    return time.time() - time.monotonic()
