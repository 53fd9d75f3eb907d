"""Open the cluster of a run with several nodes: child processes, trainers that join, or one that is there.

Dask's processes send pickled functions to each other: whoever can connect can run code. So all connections
need TLS with certificates of both sides, those within one machine included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dmls_core.errors import EngineUnavailableError, PlatformError
from dmls_core.hardware import available_cpus
from dmls_core.models.cluster import Cluster
from dmls_core.settings import DASK_SCHEDULER, ProcessSettings
from dmls_core.spec import Spec
from dmls_core.training.dask_settings import CONFIGURATION, LIBRARY_PAGES, TERMINATE
from dmls_core.training.memory import run_memory
from dmls_core.training.node_trainers import lead_nodes

if TYPE_CHECKING:
    from distributed import Client

_START_SECONDS = 120.0
"""Seconds for the workers to start, and for the connection to a cluster that is there."""


@contextmanager
def open_cluster(spec: Spec, folder: str, note: Callable[[str], None]) -> Iterator[Cluster | None]:
    """Yield the cluster of a run with several nodes, and end its own processes; ``None`` with one node.

    ``folder`` is the run's, by which nodes that are trainers find this one.

    Raises:
        EngineUnavailableError: Dask is not installed.
        PlatformError: the cluster does not answer or has too few workers.
    """
    nodes = spec.resources.nodes
    if nodes == 1:
        yield None
        return
    if missing := [name for name in ("dask", "distributed") if find_spec(name) is None]:
        raise EngineUnavailableError(
            f"[resources] nodes = {nodes} needs packages that are not installed here: {', '.join(missing)}; "
            "pip install 'dmls[dask]'"
        )
    import dask
    from distributed.utils import get_ip

    settings = ProcessSettings.from_environment()
    address, attempt = settings.dask_scheduler, settings.node_trainers
    with ExitStack() as stack:
        if address:
            client = _connect(address, stack)
        elif attempt:
            stack.enter_context(dask.config.set(CONFIGURATION))
            client = stack.enter_context(lead_nodes(nodes, folder, attempt, note))
        else:
            client = _start(nodes, run_memory(spec), stack)
        try:
            client.wait_for_workers(nodes, timeout=_START_SECONDS)
        except TimeoutError as error:
            raise PlatformError(
                f"the cluster has fewer than {nodes} workers after {_START_SECONDS:.0f} s: "
                f"{len(client.scheduler_info()['workers'])}"
            ) from error
        where = address or (f"{nodes} trainers" if attempt else "this machine")
        note(f"training on {nodes} nodes of {where}")
        host = get_ip(urlsplit(client.scheduler.address).hostname or "127.0.0.1")
        yield Cluster(client, nodes, host, note)


def _connect(address: str, stack: ExitStack) -> Client:
    """Connect to a cluster that is there, by TLS."""
    if not address.startswith("tls://"):
        raise PlatformError(
            f"{DASK_SCHEDULER} must begin with tls://, not {address[:60]!r}: whoever can connect can run code"
        )
    from distributed import Client
    from distributed.security import Security

    try:
        return stack.enter_context(
            Client(address, security=Security(require_encryption=True), timeout=_START_SECONDS)
        )
    except (OSError, ValueError, TypeError) as error:
        raise PlatformError(f"the Dask cluster {address} does not answer: {error}") from error


def _start(nodes: int, memory: int, stack: ExitStack) -> Client:
    """Start a scheduler in this process and workers as its children, on loopback."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    stack.enter_context(dask.config.set(CONFIGURATION))
    cluster = stack.enter_context(
        LocalCluster(
            n_workers=nodes,
            processes=True,
            threads_per_worker=max(1, available_cpus() // nodes),
            memory_limit=int((memory + LIBRARY_PAGES) / TERMINATE),
            host="127.0.0.1",
            dashboard_address=None,
            security=Security.temporary(),
            local_directory=os.environ.get("TMPDIR"),
        )
    )
    return stack.enter_context(Client(cluster))
