"""Loopback ports: chosen once, kept, and replaced only if another process has taken one."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable, Mapping

from dmls_core.errors import PlatformError

RANGE = range(20000, 32000)
"""Below the ephemeral ports of common systems."""

ATTEMPTS = 200

RELEASE_SECONDS = 2.0
"""A killed server holds its port until its threads have ended."""


def is_free(port: int) -> bool:
    """Return whether a server can bind ``port`` on the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        # A port with connections in TIME_WAIT is free; one with a listener is not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def choose_ports(
    names: Iterable[str], kept: Mapping[str, int], given: Mapping[str, int], busy_is_ours: Iterable[str] = ()
) -> dict[str, int]:
    """Return a port per name: the given one, else the kept one if it is free, else a new free one.

    The services of ``busy_is_ours`` run and use their kept ports. Raises ``PlatformError`` if a given port is
    taken, or none is free.
    """
    names, ours = list(names), set(busy_is_ours)
    deadline = time.monotonic() + RELEASE_SECONDS
    chosen: dict[str, int] = {}
    for name, port in given.items():
        if not (name in ours and kept.get(name) == port) and not _becomes_free(port, deadline):
            raise PlatformError(f"port {port}, asked for {name}, is taken by another process")
        chosen[name] = port
    for name in names:
        if name in chosen:
            continue
        port = kept.get(name, 0)
        usable = port and port not in chosen.values() and (name in ours or _becomes_free(port, deadline))
        chosen[name] = port if usable else _new_port(set(chosen.values()) | set(kept.values()))
    return {name: chosen[name] for name in names}


def _becomes_free(port: int, deadline: float) -> bool:
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _new_port(excluded: set[int]) -> int:
    for port in random.SystemRandom().sample(RANGE, ATTEMPTS):
        if port not in excluded and is_free(port):
            return port
    raise PlatformError(f"no free port between {RANGE.start} and {RANGE.stop}")
