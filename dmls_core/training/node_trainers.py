"""Nodes that are trainers of their own, in containers or pods: how they find the run's leader and join it.

The leader starts Dask's scheduler and writes its address into the run's folder, with a certificate made for
this attempt. A node reads both, starts a worker and ends with the leader.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dmls_core.errors import ObjectMissingError, PlatformError, StoreError
from dmls_core.hardware import available_cpus, available_memory
from dmls_core.settings import NODE_HOST, NODE_TRAINERS, ProcessSettings
from dmls_core.store import Store, layout, open_store
from dmls_core.training.dask_settings import CONFIGURATION, LIBRARY_PAGES

if TYPE_CHECKING:
    from distributed import Client, Nanny
    from distributed.security import Security

_JOIN_SECONDS = 900.0
"""Seconds for the nodes to join: a cluster may start machines for their pods."""

LEADER_SECONDS = 3600.0
"""Seconds that a node waits for its leader, which reads the data first."""

LOOK_SECONDS = 2.0
"""Interval between two looks for the leader."""

_CHECK_SECONDS = 5.0
"""Interval between two questions to the leader, and seconds for an answer."""

_CHECKS = 6
"""Failed connections in a row after which a leader is lost whose machine does not answer."""

_DEATH_SECONDS = 120.0
"""Seconds for a worker to start."""

_NANNY = 96 << 20
"""Memory of the process that watches a node's worker."""

_NO_DASHBOARD: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Dask starts a web server in any case, by default without TLS on the address of its other port."""


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Where an attempt's scheduler listens, and the certificate and key of all its processes, PEM."""

    attempt: str
    address: str
    certificate: str
    key: str = field(repr=False)

    def security(self) -> Security:
        """Return the certificate as Dask takes it: both sides of a connection must have it."""
        from distributed.security import Security

        pair = {
            f"tls_{role}_{part}": getattr(self, name)
            for role in ("client", "scheduler", "worker")
            for part, name in (("cert", "certificate"), ("key", "key"))
        }
        return Security(require_encryption=True, tls_ca_file=self.certificate, **pair)


def write_cluster(store: Store, cluster: ClusterAddress) -> None:
    """Write the address into the run's folder, in place of an earlier attempt's."""
    erase_cluster(store)
    store.put(layout.CLUSTER, json.dumps({"schema": 1, **asdict(cluster)}).encode())


def read_cluster(store: Store, attempt: str) -> ClusterAddress | None:
    """Return the address of an attempt's cluster; ``None`` if there is none, or only another attempt's."""
    with suppress(ObjectMissingError, ValueError, KeyError, TypeError):
        cluster = json.loads(store.get(layout.CLUSTER))
        if cluster["attempt"] == attempt:
            return ClusterAddress(attempt, cluster["address"], cluster["certificate"], cluster["key"])
    return None


def erase_cluster(store: Store) -> None:
    """Erase the address and the key, and all earlier versions of them."""
    store.erase(layout.CLUSTER)


@contextmanager
def lead_nodes(nodes: int, folder: str, attempt: str, note: Callable[[str], None]) -> Iterator[Client]:
    """Start a scheduler in this process, and yield a client of it when all nodes have joined.

    Raises:
        PlatformError: too few nodes joined, or they could not reach this machine.
    """
    from distributed import Client, LocalCluster
    from distributed.security import Security

    store = open_store(folder)
    tls = Security.temporary().get_tls_config_for_role("scheduler")
    credentials = ClusterAddress(attempt, "", tls["cert"], tls["key"])
    security = credentials.security()
    with (
        LocalCluster(
            n_workers=0,
            host=own_address(),
            dashboard_address=None,
            scheduler_kwargs=_NO_DASHBOARD,
            security=security,
        ) as cluster,
        Client(cluster) as client,
    ):
        write_cluster(
            store,
            ClusterAddress(attempt, cluster.scheduler_address, credentials.certificate, credentials.key),
        )
        try:
            note(f"waiting for {nodes} nodes")
            client.wait_for_workers(nodes, timeout=_JOIN_SECONDS)
        except TimeoutError as error:
            there = len(client.scheduler_info()["workers"])
            raise PlatformError(
                f"{there} of {nodes} nodes joined within {_JOIN_SECONDS:.0f} s: the others were not started, "
                f"or cannot reach {cluster.scheduler_address}"
            ) from error
        finally:
            # Nodes that have joined keep the key in memory.
            try:
                erase_cluster(store)
            except StoreError as error:
                note(f"could not delete the nodes' key (valid for this run only): {error}")
        yield client


def own_address() -> str:
    """Return the address by which other containers, pods or machines reach this one.

    Raises:
        PlatformError: it has none.
    """
    if host := ProcessSettings.from_environment().node_host:
        return host
    addresses = set()
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel chooses the address of the default route
        addresses.add(probe.getsockname()[0])
    if not _routable(addresses):
        # Without a default route, as in an internal network of Docker, which writes the name to /etc/hosts.
        with suppress(OSError):
            addresses.update(socket.gethostbyname_ex(socket.gethostname())[2])
    if not (routable := _routable(addresses)):
        raise PlatformError(
            f"this trainer has no address that its nodes can reach: put it in a network, or set {NODE_HOST}"
        )
    return routable[0]


def _routable(addresses: set[str]) -> list[str]:
    return sorted(address for address in addresses if not ipaddress.ip_address(address).is_loopback)


def run_node(folder: str) -> None:
    """Join the run that writes to ``folder`` as one of its nodes, until its leader ends.

    Raises:
        PlatformError: this attempt has no leader.
    """
    attempt = ProcessSettings.from_environment().node_trainers
    if not attempt:
        raise PlatformError(f"a node needs {NODE_TRAINERS}, which the runner sets")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Threads that wait actively slow the others down; see ``dmls_core.training.run``.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    leader = _find_leader(open_store(folder), attempt)
    asyncio.run(_work(leader))


def _find_leader(store: Store, attempt: str) -> ClusterAddress:
    end = time.monotonic() + LEADER_SECONDS
    while time.monotonic() < end:
        with suppress(StoreError):  # the next look may succeed
            if leader := read_cluster(store, attempt):
                return leader
        time.sleep(LOOK_SECONDS)
    raise PlatformError(
        f"no trainer leads the attempt {attempt} after {LEADER_SECONDS:.0f} s: {store.url}/{layout.CLUSTER} "
        "is missing or another attempt's"
    )


async def _work(leader: ClusterAddress) -> None:
    """Run a worker, restarted when it is killed, until the leader ends or does not answer."""
    import dask
    from distributed import Nanny

    with dask.config.set(CONFIGURATION):
        limit, ended = available_memory(), False
        try:
            async with Nanny(
                leader.address,
                nthreads=available_cpus(),
                memory_limit=max(limit - _NANNY, limit // 2) + LIBRARY_PAGES,
                security=leader.security(),
                host=own_address(),
                local_directory=os.environ.get("TMPDIR"),
                death_timeout=_DEATH_SECONDS,
                silence_logs=logging.WARNING,
                **_NO_DASHBOARD,
            ) as nanny:
                await _watch(nanny)
                ended = True
        except (OSError, TimeoutError) as error:
            if ended:
                return  # the nanny could not take leave of a leader that is gone
            raise PlatformError(f"the leader at {leader.address} does not answer: {error}") from error


async def _watch(nanny: Nanny) -> None:
    """Wait for the end of the nanny or of the scheduler."""
    ended = asyncio.ensure_future(nanny.finished())
    lost = 0
    while lost < _CHECKS:
        done, _ = await asyncio.wait({ended}, timeout=_CHECK_SECONDS)
        if done:
            return
        try:
            await asyncio.wait_for(nanny.scheduler.identity(), _CHECK_SECONDS)
            lost = 0
        except (OSError, TimeoutError):
            lost = await _count_lost(nanny.scheduler_addr, lost)
    ended.cancel()


async def _count_lost(address: str, lost: int) -> int:
    """Return the failed connections in a row, all ``_CHECKS`` if the leader has ended.

    A leader that is busy does not answer, but its machine connects.
    """
    parts = urlsplit(address)
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(parts.hostname, parts.port), _CHECK_SECONDS
        )
    except ConnectionRefusedError:
        return _CHECKS
    except (OSError, TimeoutError):
        return lost + 1
    writer.close()
    return 0
