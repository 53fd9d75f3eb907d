"""The workers of a run with several nodes, and the matrix whose rows they fit together.

The matrix is a file of the trainer. Its rows are sent to the workers block by block, so that no process holds
all of them in memory. Dask starts the workers, calls functions on them and notices when one is lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import PlatformError
from dmls_core.stored_matrix import StoredMatrix

if TYPE_CHECKING:
    from distributed import Client, Future

_TRIES = 3
"""Times that a fit is tried while workers get lost."""

RETURN_SECONDS = 60.0
"""Seconds to wait for a lost worker; after these the fit goes on with the others."""

GRACE_SECONDS = 3.0
"""Seconds for the calls on other nodes to end after one has failed, before their workers are restarted."""

_RESTART_SECONDS = 30.0
"""Seconds for a worker to restart."""

_POLL_SECONDS = 0.5
"""Interval between two looks whether the workers of a running fit are there."""

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class PassingError(PlatformError):
    """A call on a worker failed by a coincidence, although no worker was lost: another try may succeed."""


class ShardedMatrix(StoredMatrix):
    """Some rows of a matrix in a file, which engines fit on a cluster."""

    def __init__(self, file: NDArray[np.float32], rows: NDArray[np.integer], cluster: Cluster) -> None:
        """Take ``rows`` of ``file``, as ``StoredMatrix`` does."""
        super().__init__(file, rows)
        self.cluster = cluster

    @classmethod
    def of(cls, matrix: StoredMatrix, cluster: Cluster) -> ShardedMatrix:
        """Return the rows of ``matrix``, to fit on ``cluster``."""
        return cls(matrix.file, matrix.rows, cluster)

    def take(self, rows: NDArray[np.integer], axis: int = 0) -> ShardedMatrix:
        """Return some of the rows; see ``StoredMatrix.take``."""
        return ShardedMatrix.of(super().take(rows, axis), self.cluster)

    def shards(self, count: int) -> Iterator[tuple[int, int, NDArray[np.integer], NDArray[np.float32]]]:
        """Read the rows once and divide them among ``count`` workers, each a range of the file's order.

        Yield, for parts that fit in memory: the worker's number, the part's first row within the worker's
        rows, the positions of the rows in this matrix, and their values.
        """
        ends = shard_ends(len(self), count)
        first = 0
        for positions, block in self.blocks():
            for worker, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
                low, high = max(first, start), min(first + len(positions), end)
                if low < high:
                    part = slice(low - first, high - first)
                    yield worker, low - start, positions[part], block[part]
            first += len(positions)

    def dealt(
        self, count: int, seed: int
    ) -> Iterator[tuple[int, int, NDArray[np.integer], NDArray[np.float32]]]:
        """Read the rows once and deal them out at random; see ``shards`` and ``deal``."""
        owners = deal(len(self), count, seed)
        ends = [0] * count
        for positions, block in self.blocks():
            for number in range(count):
                chosen = np.flatnonzero(owners[positions] == number)
                if len(chosen):
                    yield number, ends[number], positions[chosen], block[chosen]
                    ends[number] += len(chosen)


def deal(rows: int, count: int, seed: int) -> NDArray[np.int16]:
    """Return the number of each row's shard, at random; the sizes of the shards differ by one at most."""
    owners = np.resize(np.arange(count, dtype=np.int16), rows)
    np.random.default_rng(seed).shuffle(owners)
    return owners


def shard_ends(rows: int, count: int) -> tuple[int, ...]:
    """Return the end of each worker's range of ``rows``."""
    return tuple(rows * (worker + 1) // count for worker in range(count))


class Cluster:
    """The workers of one run.

    Attributes:
        workers: addresses of those in use; after one was lost, those of the next try.
        nodes: number of workers that the run has asked for.
        generation: number of times that the workers have changed: state on workers of an earlier one is lost.
        host: address by which the workers reach this process.
    """

    def __init__(self, client: Client, nodes: int, host: str, note: Callable[[str], None]) -> None:
        """Use ``nodes`` workers of the client's cluster; ``note`` gets messages about lost ones."""
        self.workers: tuple[str, ...] = ()
        self.generation = 0
        self.host = host
        self.nodes = nodes
        self._client = client
        self._note = note
        self._calls: list[Future] = []
        self._cached: dict[str, tuple[int, list[Future]]] = {}
        self._choose_workers()

    def retried(self, attempt: Callable[[], _T]) -> _T:
        """Return ``attempt()``; try it again after ``PassingError``, or with new ``workers`` after a loss.

        Raises:
            PlatformError: no worker is left, or every try failed so.
        """
        for left in reversed(range(_TRIES)):
            try:
                return attempt()
            except Exception as error:
                lost, again = self._lost(), left > 0 and isinstance(error, PassingError)
                if lost and not left:
                    break
                if lost or again:
                    reason = f"{len(lost)} of {len(self.workers)} nodes lost" if lost else str(error)
                    log.debug("a fit failed: %s", reason, exc_info=error)
                    self._note(f"{reason}: the fit starts again")
                if self._end_calls(lost) or lost:
                    self._choose_workers()
                if not (lost or again):
                    raise
        raise PlatformError(
            f"nodes were lost in each of {_TRIES} tries of a fit: each may need more memory than it has; "
            "raise [resources] memory or nodes"
        )

    def submit(self, worker: int, function: Callable[..., Any], *arguments: object) -> Future:
        """Call a function on a worker, given by number; its result stays there.

        Numbers above those of the workers begin again with the first one.
        """
        return self._client.submit(
            function, *arguments, workers=[self._address(worker)], allow_other_workers=False, pure=False
        )

    def send(self, worker: int, arrays: Sequence[NDArray[Any] | None]) -> list[Future]:
        """Copy arrays to a worker."""
        # Directly: otherwise the scheduler would hold the rows on their way.
        futures: list[Future] = self._client.scatter(
            list(arrays), workers=[self._address(worker)], hash=False, direct=True
        )
        return futures

    def _address(self, worker: int) -> str:
        return self.workers[worker % len(self.workers)]

    def results(self, futures: Sequence[Future]) -> list[Any]:
        """Wait for calls; return their results, or raise the first error."""
        self.wait(futures)
        results: list[Any] = self._client.sync(self._gather, futures)
        return results

    async def _gather(self, futures: Sequence[Future]) -> list[Any]:
        """Fetch results; fail if a worker was lost (Dask would hang)."""
        fetching = asyncio.ensure_future(self._client.gather(list(futures), asynchronous=True))
        try:
            while not (await asyncio.wait({fetching}, timeout=_POLL_SECONDS))[0]:
                if not set(self.workers) <= set((await self._client.scheduler.identity())["workers"]):
                    raise ConnectionError("a node was lost")
            results: list[Any] = fetching.result()
            return results
        finally:
            fetching.cancel()

    def wait(self, futures: Sequence[Future]) -> None:
        """Wait for calls; raise the first error, or ``ConnectionError`` if a worker was lost."""
        from distributed import wait

        self._calls = list(futures)
        while True:
            try:
                wait(list(futures), timeout=_POLL_SECONDS)
            except TimeoutError:
                ended = False
            else:
                ended = True
            for future in futures:
                if future.status == "error":
                    raise future.exception()
                if future.status in ("cancelled", "lost"):
                    raise ConnectionError("a node was lost")
            if ended:
                self._calls = []
                return
            # A call to a lost worker would hang.
            if not set(self.workers) <= set(self._reported()):
                raise ConnectionError("a node was lost")

    def cached(self, name: str, make: Callable[[Cluster], list[Future]]) -> list[Future]:
        """Return what ``make`` built on the workers; build it again after they have changed."""
        generation, values = self._cached.get(name, (0, []))
        if generation != self.generation:
            self._cached.pop(name, None)
            values = make(self)
            self._cached[name] = self.generation, values
        return values

    def _end_calls(self, lost: set[str]) -> bool:
        """End calls that hang while they wait for another node, as LightGBM's do: restart their workers.

        Return whether there were any.
        """
        from distributed import wait

        calls, self._calls = self._calls, []
        with suppress(TimeoutError):
            wait([call for call in calls if call.status == "pending"], timeout=GRACE_SECONDS)
        pending = {call.key for call in calls if call.status == "pending"}
        processing = {worker: pending & set(keys) for worker, keys in self._client.processing().items()}
        hung = [worker for worker in self.workers if worker not in lost and processing.get(worker)]
        if hung:
            self._client.restart_workers(hung, timeout=_RESTART_SECONDS, raise_for_error=False)
        return bool(hung)

    def _choose_workers(self) -> None:
        """Wait for all nodes; take those that are there in the end."""
        end = time.monotonic() + RETURN_SECONDS
        while len(answering := self._answering()) < self.nodes and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        if not answering:
            raise PlatformError("the cluster has no worker left")
        if len(answering) < self.nodes:
            self._note(f"{len(answering)} of {self.nodes} nodes are left: the fit goes on with these")
        self.workers = tuple(sorted(answering)[: self.nodes])
        self.generation += 1

    def _reported(self) -> list[str]:
        """Return the addresses of the workers that the scheduler knows now."""
        return list(self._client.sync(self._client.scheduler.identity)["workers"])

    def _answering(self) -> list[str]:
        """Return those workers that answer: the scheduler may not know yet that one has ended."""
        reported = self._reported()
        answers = self._client.run(os.getpid, workers=reported, on_error="return") if reported else {}
        return [worker for worker in reported if isinstance(answers.get(worker), int)]

    def _lost(self) -> set[str]:
        return set(self.workers) - set(self._answering())
