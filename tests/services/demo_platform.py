"""One platform for all end-to-end tests, started the way a newcomer starts it: ``dmls demo``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.services.platform_client import PlatformClient
from tests.services.seaweed import free_ports

NO_ENGINE = "unix:///nonexistent.sock"

CONNECTIONS = {"DMLS_CONNECTIONS": json.dumps({"warehouse": ["demo"], "dmls_webhook_late": ["*"]})}
"""The Airflow connections that teams may use; a test adds them."""


@dataclass
class Demo:
    """What ``dmls demo`` printed, and the platform that it left running."""

    output: str
    exit_code: int
    home: Path

    def dmls(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return dmls(self.home, *arguments, timeout=timeout)

    @property
    def airflow_environment(self) -> dict[str, str]:
        """The environment of Airflow's processes."""
        platform_id = json.loads((self.home / "identity.json").read_text())["id"]
        environments = map(environment_of, marked_processes(platform_id))
        return next(found for found in environments if "AIRFLOW_HOME" in found)

    def airflow(self, *arguments: str, timeout: float = 600) -> str:
        """Run the ``airflow`` command as whoever runs Airflow does, with its configuration."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self.airflow_environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


SETTINGS: dict[Path, dict[str, str]] = {}
"""Variables of the platforms in these folders: with others, ``dmls up`` restarts Airflow."""


def dmls(
    home: Path, *arguments: str, timeout: float = 600, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the ``dmls`` command with a state folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dmls_core.cli", *arguments],
        env=os.environ
        | {"DMLS_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"}
        | SETTINGS.get(home, {})
        | variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def marked_processes(platform_id: str) -> list[psutil.Process]:
    """Return the processes that carry the platform's mark."""
    return [
        process
        for process in psutil.process_iter()
        if environment_of(process).get("DMLS_PLATFORM_ID") == platform_id
    ]


def environment_of(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process; empty if it has ended or is another user's."""
    try:
        return process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return {}


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run the demo once; the platform stays up for the tests and is taken down in the end.

    ``DMLS_TEST_HOME`` names the state folder to use instead, which is then left running.
    """
    if kept := os.environ.get("DMLS_TEST_HOME"):
        SETTINGS[Path(kept)] = CONNECTIONS
        done = dmls(Path(kept), "demo", timeout=900, DOCKER_HOST=NO_ENGINE)
        yield Demo(done.stdout + done.stderr, done.returncode, Path(kept))
        return
    home = tmp_path_factory.mktemp("demo") / ".dmls"
    try:
        # No Docker engine: the process runner. The docker runner has tests of its own.
        # Pages of one other origin may predict; a test serves such a page there.
        SETTINGS[home] = CONNECTIONS | {"DMLS_CORS_ORIGINS": f"http://127.0.0.1:{free_ports(1)[0]}"}
        done = dmls(home, "demo", timeout=900, DOCKER_HOST=NO_ENGINE)
        yield Demo(done.stdout + done.stderr, done.returncode, home)
    finally:
        down = dmls(home, "down", timeout=300)
        assert down.returncode == 0, down.stderr


@pytest.fixture(scope="session")
def platform(demo: Demo) -> PlatformClient:
    """The running platform through its public protocols."""
    assert demo.exit_code == 0, demo.output
    return PlatformClient(demo.home / "platform.json")
