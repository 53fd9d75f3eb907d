"""Children of the sandbox that stay for further calls: each test would wait for the imports of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dmls_core import sandbox
from dmls_core.sandbox import Limits, Worker

MOST = 2
"""Children at a time: they stay until the last test, and may hold 200 MB each."""


class WarmSandbox:
    """Serve calls of ``sandbox.run`` by one child for each set of limits and environment variables."""

    def __init__(self) -> None:
        self._run = sandbox.run
        self._workers: dict[object, Worker] = {}

    def run(
        self, function: Callable[..., Any], /, *args: object, limits: Limits | None = None, **options: str
    ) -> Any:
        """Call a function as ``sandbox.run`` does."""
        if threading.current_thread() is not threading.main_thread():  # A child ends with its thread.
            return self._run(function, *args, limits=limits, **options)
        limits = limits or Limits()
        variables = sandbox._environment(limits)
        variables.pop("PYTEST_CURRENT_TEST", None)
        key = limits, tuple(sorted(variables.items()))
        worker = self._workers.pop(key, None) or Worker(limits)
        self._workers[key] = worker
        if len(self._workers) > MOST:
            self._workers.pop(next(iter(self._workers))).close()
        return worker.call(function, *args, **options)

    def close(self) -> None:
        """End the children."""
        for worker in self._workers.values():
            with suppress(OSError):
                worker.close()
