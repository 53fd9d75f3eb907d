"""One platform for all end-to-end tests, started the way a newcomer starts it: ``dmls demo``.

It begins with the session, and with it what the end-to-end modules want to be done ahead: their ``AHEAD``
maps a job to what is dropped, ``(team, job): (spec, data)``, and their ``go_ahead(platform)`` does the rest.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.services.ahead import Ahead
from tests.services.platform_client import PlatformClient

NO_ENGINE = "unix:///nonexistent.sock"
DEMO_SECONDS = 900


@dataclass
class Demo:
    """What ``dmls demo`` printed, and the platform that it left running."""

    output: str
    exit_code: int
    home: Path

    def dmls(self, *arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        return dmls(self.home, *arguments, timeout=timeout)

    def airflow(self, *arguments: str, timeout: float = 180) -> str:
        """Run the ``airflow`` command as whoever runs Airflow does, with its configuration."""
        platform_id = json.loads((self.home / "identity.json").read_text())["id"]
        environments = (process.environ() for process in marked_processes(platform_id))
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=next(found for found in environments if "AIRFLOW_HOME" in found),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def dmls(
    home: Path, *arguments: str, timeout: float = 180, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the ``dmls`` command with a state folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dmls_core.cli", *arguments],
        env=os.environ | {"DMLS_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"} | variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def marked_processes(platform_id: str) -> list[psutil.Process]:
    """Return the processes that carry the platform's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DMLS_PLATFORM_ID") == platform_id:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def begin(ahead: Ahead) -> None:
    """Have the demo run, and what is to be done ahead, if tests of this session use it."""
    if "demo" not in ahead.wanted:
        return
    home = str(demo_home(ahead))
    this = "tests.services.demo_platform"
    undo = () if os.environ.get("DMLS_TEST_HOME") else (this, "down", home)
    ahead.begin("demo", this, "up", home, after="engine", undo=undo)
    modules = [m.__name__ for m in ahead.modules if hasattr(m, "AHEAD") or hasattr(m, "go_ahead")]
    ahead.begin("dropped", this, "drop", home, *modules, after="demo")


def demo_home(ahead: Ahead) -> Path:
    """The state folder; ``DMLS_TEST_HOME`` names one to use instead, which is then left running."""
    return Path(os.environ.get("DMLS_TEST_HOME") or ahead.folder / "demo" / ".dmls")


def finished(home: Path) -> Demo:
    """Return the demo that was run over a state folder."""
    found = json.loads((home / "demo.json").read_text())
    return Demo(found["output"], found["exit_code"], home)


@pytest.fixture(scope="session")
def demo(ahead: Ahead) -> Demo:
    """The demo, which ran once; the platform stays up for the tests."""
    ahead.join("demo")
    return finished(demo_home(ahead))


@pytest.fixture(scope="session")
def platform(demo: Demo, ahead: Ahead) -> PlatformClient:
    """The running platform through its public protocols."""
    assert demo.exit_code == 0, demo.output
    ahead.join("dropped")
    return PlatformClient(demo.home / "platform.json")


def main(action: str, home: Path, *modules: str) -> int:
    """Run the demo, drop what modules want dropped ahead, or stop the platform."""
    if action == "up":
        home.parent.mkdir(parents=True, exist_ok=True)
        # No Docker engine: the process runner. The docker runner has tests of its own.
        done = dmls(home, "demo", timeout=DEMO_SECONDS, DOCKER_HOST=NO_ENGINE)
        found = {"output": done.stdout + done.stderr, "exit_code": done.returncode}
        (home / "demo.json").touch(mode=0o600)  # like all else there
        (home / "demo.json").write_text(json.dumps(found))
    elif action == "drop" and finished(home).exit_code == 0:
        platform = PlatformClient(home / "platform.json")
        imported = [importlib.import_module(name) for name in modules]
        for module in imported:
            for (team, job), (spec, table) in getattr(module, "AHEAD", {}).items():
                platform.drop(team, job, spec, table)
        for module in imported:
            getattr(module, "go_ahead", lambda _: None)(platform)
    elif action == "down":
        done = dmls(home, "down", timeout=120)
        print(done.stderr, file=sys.stderr)
        return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
