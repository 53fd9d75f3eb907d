"""A short `make chaos` whose faults are always the same: nothing is lost, doubled or served wrongly."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tests.bench.chaos import SPEC, TEAM, check
from tests.e2e import data
from tests.e2e.test_cancel import trainers
from tests.services.demo_platform import Demo
from tests.services.platform_client import PATIENCE, PlatformClient
from tests.services.platform_home import PlatformHome, eventually

pytestmark = pytest.mark.nightly("other files of `faults` kill the same parts one by one")

JOBS = ("duplicate", "trainer")
SERVICES = ("airflow-scheduler", "s3", "triton")


def test_kills_and_a_duplicate_event_lose_and_double_nothing(demo: Demo, platform: PlatformClient) -> None:
    home = PlatformHome(demo.home)
    for name in JOBS:
        platform.drop(TEAM, name, SPEC, data.iris())
    platform.drop(TEAM, "duplicate", SPEC, data.iris())

    for service in SERVICES:
        os.kill(home.main_pid(service), signal.SIGKILL)
    kill_trainer("trainer")

    end = time.monotonic() + PATIENCE
    assert {name: problems for name in JOBS if (problems := check(platform, name, end))} == {}
    eventually(lambda: home.platform.status().up)


def kill_trainer(name: str) -> None:
    """Kill the trainer of a job as soon as there is one."""
    found: list[psutil.Process] = []

    def started() -> bool:
        found.extend(trainers(TEAM, name))
        return bool(found)

    eventually(started)
    for process in found:
        process.kill()
