"""What takes long to start begins before the first test, in processes of its own, while other tests run.

Processes and not threads: tests patch what they import, and the environment. The names of the fixtures that
the session's tests use say what is begun; each of these fixtures waits for its own with ``join``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOIN_SECONDS, END_SECONDS = 1500, 800

WAIT_AND_RUN = 'cat > /dev/null; exec "$@"'
"""The standard input ends with the process that is to end before."""


@dataclass(frozen=True)
class Begun:
    """A process that starts something.

    Attributes:
        process: itself.
        log: what it says.
        ended: a pipe that ends with it.
        undo: a Python module with arguments, which takes back what it started.
        environment: of both.
    """

    process: subprocess.Popen[bytes]
    log: Path
    ended: int
    undo: tuple[str, ...]
    environment: dict[str, str]


class Ahead:
    """What was begun in this session.

    Args:
        folder: for logs, and for what is begun.
        items: the session's tests.

    Attributes:
        wanted: names of the fixtures that they use.
        modules: where they are.
        places: where something is, by the name that it was begun by.
    """

    def __init__(self, folder: Path, items: list[pytest.Item]) -> None:
        tests = [item for item in items if isinstance(item, pytest.Function)]
        self.folder = folder
        self.wanted = {name for test in tests for name in test.fixturenames}
        self.modules = list(dict.fromkeys(test.module for test in tests))
        self.places: dict[str, str] = {}
        self._environment = dict(os.environ)
        self._begun: dict[str, Begun] = {}
        self._ending: list[subprocess.Popen[bytes]] = []

    def begin(
        self, name: str, *command: str, after: str = "", undo: tuple[str, ...] = (), **variables: str
    ) -> None:
        """Start a Python module, unless that was done.

        Args:
            name: to join it by.
            command: the module and its arguments.
            after: what is to end before, if it was begun: two cores are soon busy.
            undo: the module and the arguments that take back what it starts.
            variables: for the environment.
        """
        if name in self._begun:
            return
        log = self.folder / f"{name}.log"
        environment = self._environment | variables
        ended, end = os.pipe()
        earlier = self._begun.get(after)
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", WAIT_AND_RUN, "bash", sys.executable, "-m", *command],
                env=environment,
                cwd=ROOT,
                stdin=earlier.ended if earlier else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(end,),
            )
        os.close(end)
        self._begun[name] = Begun(process, log, ended, undo, environment)

    def join(self, name: str) -> None:
        """Wait until the process has ended.

        Raises:
            AssertionError: it failed; with the end of what it said.
        """
        code = self._begun[name].process.wait(JOIN_SECONDS)
        assert code == 0, f"{name}: exit code {code}\n{self.said(name)}"

    def runs(self, name: str) -> bool:
        """Say whether the process has not ended."""
        return self._begun[name].process.poll() is None

    def said(self, name: str) -> str:
        """Return the end of what the process said."""
        return self._begun[name].log.read_text(errors="replace")[-6000:]

    def take_back(self, name: str) -> None:
        """Begin to take back what was started."""
        begun = self._begun.pop(name)
        if begun.process.poll() is None:
            os.killpg(begun.process.pid, signal.SIGKILL)
            begun.process.wait()
        os.close(begun.ended)
        if begun.undo:
            command = [sys.executable, "-m", *begun.undo]
            self._ending.append(subprocess.Popen(command, env=begun.environment, cwd=ROOT))

    def end(self) -> None:
        """Take everything back, side by side.

        Raises:
            AssertionError: something could not be.
        """
        for name in list(self._begun):
            self.take_back(name)
        codes = [process.wait(END_SECONDS) for process in self._ending]
        assert not any(codes), codes


@pytest.fixture(scope="session", autouse=True)
def ahead(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ahead]:
    """Begin what the session's tests use, and take it back in the end."""
    from tests.services import demo_platform, docker_engine, mlflow_server

    ahead = Ahead(tmp_path_factory.mktemp("ahead"), request.session.items)
    try:
        mlflow_server.begin(ahead)
        docker_engine.begin(ahead)
        demo_platform.begin(ahead)
        yield ahead
    finally:
        ahead.end()
