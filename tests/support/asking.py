"""Clients that ask servers all the time while a test changes the servers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from dmls_core.devstack.supervisor import wait_until
from dmls_core.errors import DmlsError

Client = TypeVar("Client")

PAUSE = 0.01
"""Seconds between a client's requests: Triton's Python backend ends servers that get too little CPU time."""


class Asking(Generic[Client]):
    """Threads, one for each name, that ask until the ``with`` block ends, each over a client of its own."""

    def __init__(
        self,
        names: Iterable[str],
        connect: Callable[[str], AbstractContextManager[Client]],
        ask: Callable[[str, Client], object],
    ) -> None:
        """Note how the thread of a name connects, and how it asks: a ``DmlsError`` is a failed request."""
        self.failed: list[str] = []
        self.answered: Counter[str] = Counter()
        self._connect, self._ask = connect, ask
        self._ended = threading.Event()
        self._threads = {name: threading.Thread(target=self._go_on, args=[name]) for name in names}

    def __enter__(self) -> Asking[Client]:
        for thread in self._threads.values():
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads.values():
            thread.join()

    def _go_on(self, name: str) -> None:
        with self._connect(name) as client:
            while not self._ended.wait(PAUSE):
                try:
                    self._ask(name, client)
                    self.answered[name] += 1
                except DmlsError as error:
                    self.failed.append(f"{name}: {error}")

    def wait_more(self, answers: int = 20, seconds: float = 120) -> None:
        """Wait until each thread has had some more answers."""
        goal = {name: self.answered[name] + answers for name in self._threads}
        wait_until(lambda: all(self.answered[name] >= goal[name] for name in goal), seconds)
