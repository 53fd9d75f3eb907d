"""Wait for the ends of trainers; one thread of a process reads the events of the runner's service."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar
from weakref import WeakKeyDictionary

from dmls_core.airflow.runners.runner import Runner, TrainerExit, in_thread

POLL_SECONDS = 1.0
"""Interval between two looks at a trainer, for a runner that gets no events."""

_RECHECK_SECONDS = 60.0
"""Longest time between two looks at a trainer whose service sends events: some may be lost."""

_RECONNECT_SECONDS = 5.0
"""Wait before the events are read again after the service has disconnected."""

log = logging.getLogger(__name__)


async def wait_for_exit(runner: Runner, key: str) -> TrainerExit:
    """Wait for a trainer's end in the triggerer's event loop, without blocking it."""
    interval = _RECHECK_SECONDS if runner.sends_events else POLL_SECONDS
    with TrainerEvents.of(runner).subscribed(key) as changed:
        while True:
            changed.clear()
            try:
                if ended := await in_thread(runner.exit_of, key):
                    return ended
            except runner.service_errors as error:
                log.warning("cannot see the trainer (%s); trying again", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), interval)


class TrainerEvents:
    """The events of one runner: each wakes the trigger of its trainer."""

    _instances: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Runner, TrainerEvents]]] = (
        WeakKeyDictionary()
    )

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Event] = {}
        if runner.sends_events:
            threading.Thread(target=self._read, name="dmls-trainer-events", daemon=True).start()

    @classmethod
    def of(cls, runner: Runner) -> TrainerEvents:
        """Return the events of a runner with these settings for the running event loop."""
        runners = cls._instances.setdefault(asyncio.get_running_loop(), {})
        for other, events in runners.items():
            if (type(other), other.settings) == (type(runner), runner.settings):
                return events
        return runners.setdefault(runner, cls(runner))

    @contextmanager
    def subscribed(self, key: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the trainer of ``key`` may have ended."""
        changed = self._waiting[key] = asyncio.Event()
        try:
            yield changed
        finally:
            del self._waiting[key]

    def _read(self) -> None:
        while not self._loop.is_closed():
            try:
                for key in self._runner.changes():
                    self._wake(key)
            except self._runner.service_errors as error:
                log.warning("cannot read the events of trainers (%s); trying again", error)
            time.sleep(_RECONNECT_SECONDS)

    def _wake(self, key: str) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(
                lambda: self._waiting[key].set() if key in self._waiting else None
            )
