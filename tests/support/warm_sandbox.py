"""Children of the sandbox that stay for further calls: each test would wait for the imports of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from dmls_core import sandbox
from dmls_core.sandbox import Limits, Worker

MOST = 2
"""Idle children at a time: they stay until the last test, and may hold 200 MB each."""

UNREAD = ("DMLS_ROOT", "PYTEST_CURRENT_TEST")
"""Variables that differ from test to test, and that no function reads in a child."""


class WarmSandbox:
    """Serve calls of ``sandbox.run`` by children that others with equal limits and variables have used."""

    def __init__(self) -> None:
        self._idle: dict[object, Worker] = {}
        self._lock = threading.Lock()
        # A child ends with the thread that started it: these last as long as the main thread.
        self._threads = ThreadPoolExecutor(4)

    def run(self, function: Callable[..., Any], /, *args: object, **options: Any) -> Any:
        """Call a function as ``sandbox.run`` does."""
        if threading.current_thread() is threading.main_thread():
            return self._run(function, *args, **options)
        return self._threads.submit(self._run, function, *args, **options).result()

    def _run(
        self, function: Callable[..., Any], /, *args: object, limits: Limits | None = None, **options: str
    ) -> Any:
        limits = limits or Limits()
        variables = sandbox._environment(limits)
        key = limits, tuple(sorted(item for item in variables.items() if item[0] not in UNREAD))
        with self._lock:
            worker = self._idle.pop(key, None) or Worker(limits)
        try:
            return worker.call(function, *args, **options)
        finally:
            with self._lock:
                surplus = [self._idle.pop(key)] if key in self._idle else []
                self._idle[key] = worker
                if len(self._idle) > MOST:
                    surplus.append(self._idle.pop(next(iter(self._idle))))
            for one in surplus:
                one.close()

    def close(self) -> None:
        """End the children."""
        self._threads.shutdown()
        for worker in self._idle.values():
            with suppress(OSError):
                worker.close()
