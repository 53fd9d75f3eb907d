"""Services of the platform: supervised commands and their readiness probes."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dmls_core.errors import PlatformError

PROBE_SECONDS = 3.0

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.4
"""Seconds between two probes: they grow from the first to the second."""

LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Service:
    """One supervised process.

    Attributes:
        name: its name in the supervisor, in logs and in ``DMLS_SERVICE``.
        command: program and arguments; no secrets, since every user can list them.
        environment: variables in addition to those of all services; may hold secrets.
        ready: whether the process that started at the given time (seconds since the epoch) responds.
        seconds: longest time until it responds.
        stale: files (glob patterns) of a killed predecessor to remove first.
    """

    name: str
    command: list[str]
    folder: Path
    ready: Callable[[float], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 300.0
    url: str = ""
    stale: tuple[str, ...] = ()


def http_answers(url: str, status: int = 200) -> bool:
    """Return whether a GET of ``url`` responds with ``status``."""
    return http_text(url, status) is not None


def http_text(url: str, status: int = 200) -> str | None:
    """Return the body of a GET of ``url``; ``None`` unless it responds with ``status``."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url)  # noqa: S310 - our own loopback addresses
        with opener.open(request, timeout=PROBE_SECONDS) as answer:
            body: bytes = answer.read()
            return body.decode(errors="replace") if answer.status == status else None
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace") if error.code == status else None
    except (OSError, http.client.HTTPException, ValueError):  # ValueError: it is no address at all
        return None


def port_answers(port: int) -> bool:
    """Return whether a process listens on the loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(PROBE_SECONDS)
        return sock.connect_ex(("127.0.0.1", port)) == 0


def wait_until(ready: Callable[[], bool], seconds: float) -> None:
    """Wait until ``ready()``, which may raise to stop waiting; raise ``PlatformError`` after ``seconds``."""
    end = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while not ready():
        if time.monotonic() > end:
            raise PlatformError(f"no answer after {seconds:.0f} s")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)


def last_lines(log: Path, count: int = LAST_LINES) -> str:
    """Return the last lines of a log, for an error's message."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 16384))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line[:300] for line in lines[-count:])
