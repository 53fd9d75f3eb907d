"""The all-reduce that joins the nodes of a fit: XGBoost's with a tracker, or LightGBM's by its own sockets.

The trainer gives each worker a ``Member``. A function that ``Member.call`` runs on all workers at once is
one fit on the rows of all of them.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

from dmls_core.models.cluster import Cluster, PassingError

if TYPE_CHECKING:
    from distributed import Future as DaskFuture

Library = Literal["xgboost", "lightgbm"]

_CONNECT_MINUTES = 5
"""Minutes that LightGBM waits for connections of the other nodes."""

_T = TypeVar("_T")


@contextmanager
def all_reduce(cluster: Cluster, library: Library) -> Iterator[Sequence[Member | DaskFuture]]:
    """Yield a member for each worker, as an argument of the functions to call there."""
    if library == "lightgbm":
        yield cluster.cached("lightgbm", _connect_sockets)
        return
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(len(cluster.workers), host_ip=cluster.host, sortby="task")
    tracker.start()
    try:
        yield [TrackerMember(tracker.worker_args())] * len(cluster.workers)
    finally:
        tracker.free()


class Member(ABC):
    """One worker's part in an all-reduce."""

    @abstractmethod
    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function of the library, on the worker, while its calls on the other workers run."""


@dataclass(frozen=True, slots=True)
class TrackerMember(Member):
    """A part in XGBoost's all-reduce, joined for one call."""

    addresses: Mapping[str, Any]

    def call(self, function: Callable[[], _T]) -> _T:
        """Join the other workers by the tracker, and call the function."""
        from distributed import get_worker
        from xgboost import collective

        # Ranks in the order of addresses: the same rows have the same rank in every fit.
        context = collective.CommunicatorContext(dmlc_task_id=get_worker().address, **self.addresses)
        with ExitStack() as stack:
            with redirect_stdout(StringIO()):  # XGBoost prints each rank, whatever its verbosity
                stack.enter_context(context)
            return function()


class SocketMember(Member):
    """A part in LightGBM's all-reduce, kept as long as the workers are the same.

    LightGBM's connections belong to the thread that opens them, so all calls run in one thread.
    """

    def __init__(self, machines: Sequence[str], number: int) -> None:
        """Connect with the other workers; ``machines`` are the addresses of all, and it is one of them."""
        self.size = len(machines)
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        # A daemon: the process ends without it.
        Thread(target=_run, args=(self._calls,), name="dmls-lightgbm", daemon=True).start()
        self.call(lambda: _connect(machines, number))

    def call(self, function: Callable[[], _T]) -> _T:
        """Call the function in the thread with the connections."""
        result: Future[_T] = Future()
        self._calls.put((function, result))
        return result.result()

    def __del__(self) -> None:
        """Close the connections."""
        self._calls.put(None)


def _connect_sockets(cluster: Cluster) -> list[DaskFuture]:
    """Connect LightGBM on all workers; return the ``SocketMember`` of each, which stays there."""
    workers = range(len(cluster.workers))
    ports = cluster.results([cluster.submit(worker, free_port) for worker in workers])
    hosts = [urlsplit(address).hostname for address in cluster.workers]
    machines = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
    members = [cluster.submit(worker, SocketMember, machines, worker) for worker in workers]
    cluster.wait(members)
    return members


def free_port() -> int:
    """Return a port of this machine that is free now; another process may take it before LightGBM does."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
    return port


def _run(calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    """Run the calls of a ``SocketMember`` in this thread, until it is deleted; then disconnect."""
    while call := calls.get():
        function, result = call
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001 - the caller's to judge
            result.set_exception(error)
        del call, function, result  # they hold the rows
    _disconnect()


def _connect(machines: Sequence[str], number: int) -> None:
    """Open LightGBM's connections for this thread; ranks are the positions in ``machines``."""
    if len(machines) == 1:
        return
    from lightgbm import basic

    # As Booster.set_network, which needs a booster; but a booster needs the connections.
    library: Any = basic
    port = int(machines[number].rpartition(":")[2])
    with _without_output():
        code = library._LIB.LGBM_NetworkInit(  # noqa: SLF001 - LightGBM offers no other
            ",".join(machines).encode(), port, _CONNECT_MINUTES, len(machines)
        )
    if code:
        error = library._LIB.LGBM_GetLastError().decode()  # noqa: SLF001
        if "Binding port" in error:
            raise PassingError(f"another process has taken port {port} of a node")
        raise ConnectionError(f"LightGBM cannot connect the nodes {', '.join(machines)}")


@contextmanager
def _without_output() -> Iterator[None]:
    """Discard the standard output of this process: LightGBM prints each connection, in a thread of its own.

    It may be that of the trainer, which prints its result there.
    """
    output = os.dup(1)
    try:
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 1)
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def _disconnect() -> None:
    from lightgbm import basic

    library: Any = basic
    library._LIB.LGBM_NetworkFree()  # noqa: SLF001
