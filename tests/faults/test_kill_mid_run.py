"""Scheduler, triggerer or trainer killed with -9 in the middle of a run: it ends well, once."""

from __future__ import annotations

import json
import time

import psutil
import pytest

from tests.e2e import data
from tests.e2e.test_cancel import trainers
from tests.services.demo_platform import marked_processes
from tests.services.platform_client import PlatformClient

SPEC = (
    data.IRIS.replace("min = 50\nmax = 500", "min = 300\nmax = 600").replace("n_trials = 5", "n_trials = 6")
    + '[deploy]\nmode = "auto"\n'
)


def service(platform: PlatformClient, word: str) -> list[psutil.Process]:
    """Return a service's processes by a word of their command line."""
    found = []
    for process in marked_processes(platform.state["platform_id"]):
        try:
            line = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if word in line:
            found.append(process)
    return found


def drop_and_wait_for_trials(platform: PlatformClient, name: str) -> set[str]:
    platform.drop("faults", name, SPEC, data.iris())
    platform.wait_task("faults", name, "search", "deferred")
    end = time.monotonic() + 90
    trials: list[str] = []
    while len(trials) < 2:
        assert time.monotonic() < end, platform.status("faults", name)
        time.sleep(0.3)
        trials = [key for key in platform.keys(f"runs/faults/{name}/") if "/trials/" in key]
    return set(trials)


def assert_ended_well_once(platform: PlatformClient, name: str, paid: set[str]) -> None:
    # It may have failed for a moment: then it is tried again.
    platform.wait_status("faults", name, "deployed", final=("rejected",))
    result = platform.run_file("faults", name, "result.json")
    trials = [key for key in platform.keys(f"runs/faults/{name}/") if "/trials/" in key]
    assert result["n_trials"] == 6
    assert len(trials) == 6
    assert paid <= set(trials)
    assert len(platform.runs("faults", name)) == 1
    assert platform.champion(f"faults.{name}")["version"] == "1"


@pytest.mark.nightly(
    "`integration/test_train.py` kills a trainer and pays no trial twice; suites of runners retry lost ones"
)
def test_the_trainer(platform: PlatformClient):
    paid = drop_and_wait_for_trials(platform, "trainer")
    before = {key: json.loads(platform.get(key) or b"{}") for key in paid}

    for process in trainers("faults", "trainer"):
        process.kill()

    assert_ended_well_once(platform, "trainer", paid)
    for key, trial in before.items():
        now = json.loads(platform.get(key) or b"{}")
        # What went on to more trees kept what it had.
        assert now == trial or now["steps"] > trial["steps"], "a finished trial was paid twice"
        assert now["intermediate_values"][: len(trial["intermediate_values"])] == trial["intermediate_values"]


@pytest.mark.nightly("`faults/test_platform_kill.py` kills them without a run")
def test_services_of_airflow(platform: PlatformClient):
    paid = drop_and_wait_for_trials(platform, "services")
    for name in ("triggerer", "scheduler"):
        killed = service(platform, f"airflow {name}")
        assert killed, f"no process of the {name} was found"

        for process in killed:
            process.kill()

    assert_ended_well_once(platform, "services", paid)
