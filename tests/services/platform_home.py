"""One embedded platform for the tests that take it apart, with what they ask of its processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmls_core.devstack.platform import Platform
from dmls_core.devstack.processes import Marked, find_marked

PATIENCE = 600
"""Seconds for services to come back on two slow cores that other tests share."""


class PlatformHome:
    """A platform in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.platform = Platform(folder)

    @property
    def identity(self) -> dict[str, Any]:
        return json.loads((self.folder / "identity.json").read_text())

    @property
    def state(self) -> dict[str, Any]:
        return json.loads((self.folder / "platform.json").read_text())

    def processes(self, service: str | None = None) -> list[Marked]:
        """Return the platform's processes, or one service's; supervisord's service is empty."""
        return [m for m in find_marked(self.identity["id"]) if service in (None, m.service)]

    def main_pid(self, service: str) -> int:
        return next(s.pid for s in self.platform.status().services if s.name == service)

    def supervisor_pid(self) -> int:
        return int((Path(self.identity["runtime"]) / "supervisord.pid").read_text())

    def assert_nothing_is_left(self) -> None:
        """Fail if a process, a port, a socket or a file of the platform that is down is still there."""
        assert self.processes() == []
        assert not (self.folder / "platform.json").exists()
        assert not Path(self.identity["runtime"]).exists()
        assert not list(Path("/dev/shm").glob(f"dmls-{self.identity['id']}-*"))
        for name, port in self.identity["ports"].items():
            listening = [c for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port]
            assert not [c for c in listening if c.status == psutil.CONN_LISTEN], name
            assert not Path(f"/tmp/seaweedfs-{name.removesuffix('_grpc')}-grpc-{port}.sock").exists()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformHome]:
    """A platform that is brought up and, in the end, down; a test may leave its services stopped."""
    home = PlatformHome(tmp_path_factory.mktemp("platform") / ".dmls")
    try:
        home.platform.up()
        yield home
    finally:
        home.platform.down()


def eventually(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.2)
