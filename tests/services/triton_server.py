"""A real Triton server on loopback, as the embedded platform runs it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dmls_core.devstack.context import Context, Identity
from dmls_core.devstack.processes import clear_stale, late_arguments
from dmls_core.devstack.supervisor import Service, http_answers, wait_until
from dmls_core.devstack.triton import PORTS, TritonServer, find_server, triton_service
from dmls_core.serving import Repository, TritonClient
from tests.services.seaweed import free_ports

START_SECONDS = 300
STOP_SECONDS = 20


@dataclass
class TritonProcess:
    """Starts and ends one Triton server; its ports and its repository stay the same."""

    service: Service
    context: Context
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def repository(self) -> Repository:
        return Repository(str(self.context.model_repository))

    def client(self, **options: Any) -> TritonClient:
        return TritonClient(
            self.context.address("triton_http"), self.context.address("triton_grpc"), **options
        )

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.service.command, *late_arguments(self.service.late_arguments)],
                env={**os.environ, **self.service.environment},
                cwd=self.service.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until(self._answers, START_SECONDS)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):  # the Python backend's own processes outlive a killed server
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        clear_stale({"stale": self.service.stale})

    def clear(self) -> None:
        """Unload and delete all models: each start loads those that are there, one after the other."""
        if self.process and self.process.poll() is None:
            with self.client() as client:
                # A table endpoint before the forest that it asks.
                for model in sorted(client.uses(), key=len, reverse=True):
                    client.unload(model)
        for entry in self.context.model_repository.iterdir():
            shutil.rmtree(entry)

    def check(self) -> None:
        """Raise if the server ended by itself."""
        if self.process and self.process.poll() is not None:
            raise RuntimeError(f"Triton ended:\n{self.log.read_text(errors='replace')[-3000:]}")

    def _answers(self) -> bool:
        self.check()
        # Its port of the metrics is the last one to listen; if that is taken, the server ends.
        return self.service.ready(0.0) and http_answers(f"{self.context.url('triton_metrics')}/metrics")


def new_triton(folder: Path, *, repository: str = "", key: str = "") -> TritonProcess:
    """Prepare a Triton server with an empty repository; its state goes below ``folder``.

    Args:
        folder: for its state.
        repository: as Triton takes it, in place of a folder in the state.
        key: what it asks for before it loads a model.
    """
    state = folder / "state"
    state.mkdir()
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    identity = Identity(
        id=os.urandom(8).hex(), runtime=str(state), credentials={"triton_key": key}, ports=ports
    )
    context = Context(state, identity)
    log = state / "triton.log"
    if not INSTALLED or not INSTALLED[0].program.exists():
        INSTALLED[:] = [find_server(state, dict(os.environ), log)]
    service = triton_service(context, INSTALLED[0])
    if repository:
        own = f"--model-repository={context.model_repository}"
        command = [f"--model-repository={repository}" if word == own else word for word in service.command]
        service = replace(service, command=[*command, "--load-model=*"], late_arguments=())
    return TritonProcess(service, context, log)


INSTALLED: list[TritonServer] = []
"""The server's program, which is installed for the first server of a process."""

SHARED: list[TritonProcess] = []
"""The server of this test session, once a test has asked for it."""


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonProcess]:
    """A Triton server that lasts as long as the test session, with an empty repository."""
    server = new_triton(tmp_path_factory.mktemp("triton"))
    server.start()
    SHARED.append(server)
    yield server
    SHARED.clear()
    server.stop()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take the models of a file from the shared server when the next test is in another file."""
    for server in SHARED:
        if nextitem is not None and nextitem.path != item.path:
            server.clear()


def pytest_runtest_setup() -> None:
    """Start the shared server again if it has crashed, so that only the test fails in which it did."""
    for server in SHARED:
        if server.process and server.process.poll() is not None:
            server.stop()
            server.start()
