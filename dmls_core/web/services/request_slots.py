"""Slots for requests that cost much, in this process of the API server: how many run, how many of one caller.

Airflow's own routes share the event loop, the interpreter's lock and the memory with them.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from dmls_core.errors import DmlsError

T = TypeVar("T")

RETRY_SECONDS = 10
"""Seconds after which a refused request may be sent again."""


class BusyServerError(DmlsError):
    """A request got no slot; ``by_caller`` is whether the caller's other requests have all of its share."""

    def __init__(self, *, by_caller: bool) -> None:
        whose = "your other requests" if by_caller else "requests of others"
        super().__init__(f"the server is busy with {whose}: try again in {RETRY_SECONDS} s")
        self.by_caller = by_caller


class Slots:
    """A limited number of requests at a time, each caller's share of them, and those that wait.

    A freed slot goes to the callers in turn. Nothing of a request that waits has been read but the first
    64 KiB of its body, which the server buffers.

    Args:
        total: requests that run at a time.
        share: of them, those of one caller.
        waiting: further requests of one caller; more are refused at once.
        seconds: time after which a request that waits is refused.
    """

    def __init__(self, total: int, share: int, *, waiting: int = 32, seconds: float = 30.0) -> None:
        self.total, self.share, self._most_waiting, self._seconds = total, share, waiting, seconds
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        """Caller -> its requests, oldest first; the caller whose turn is next comes first."""

    @asynccontextmanager
    async def hold(self, caller: str) -> AsyncIterator[None]:
        """Wait for a slot, and free it afterwards; raise ``BusyServerError`` if there is none in time."""
        queue = self._waiting.setdefault(caller, [])
        if len(queue) >= self._most_waiting:
            raise BusyServerError(by_caller=True)
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._grant()
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except TimeoutError:
            raise BusyServerError(by_caller=self._running[caller] >= self.share) from None
        else:
            yield
        finally:
            self._leave(caller, turn)

    def _grant(self) -> None:
        """Give free slots to the callers in turn."""
        for caller in list(self._waiting):
            if self._running.total() >= self.total:
                return
            queue = self._waiting[caller]
            turn = next((turn for turn in queue if not turn.done()), None)
            if turn is None or self._running[caller] >= self.share:
                continue
            self._running[caller] += 1
            turn.set_result(None)
            queue.remove(turn)
            del self._waiting[caller]
            if queue:
                self._waiting[caller] = queue  # behind the others

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        """Free the slot of a request, or remove it from those that wait."""
        if turn.cancelled():
            self._waiting[caller].remove(turn)
            if not self._waiting[caller]:
                del self._waiting[caller]
            return
        self._running[caller] -= 1
        self._running += Counter()  # without callers that have none
        self._grant()


_CPUS = os.cpu_count() or 1

PREDICTIONS = Slots(8, 4, waiting=256)
"""For predictions of up to ``SMALL`` bytes of rows, which threads of this process answer."""

TABLES = Slots(max(2, _CPUS // 2), max(1, _CPUS // 4), seconds=60.0)
"""For predictions of more rows, which children with limits answer."""

FILES = Slots(4, 2)
"""For requests with the bytes of a file, which are in memory or sampled in a child."""

SCORES = Slots(2, 1)
"""For files that are scored while they are read, in a thread of this process."""

SMALL = 64 << 10
"""Bytes of the largest body that is predicted in the API server's own process."""

# Not Airflow's threads: its routes would wait for predictions.
_threads = ThreadPoolExecutor(PREDICTIONS.total, "dmls-predictions")


async def run_prediction(function: Callable[..., T], *args: object) -> T:
    """Call a function in one of the threads for ``PREDICTIONS``."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, *args)
