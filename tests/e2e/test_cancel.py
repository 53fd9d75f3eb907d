"""Cancelling a task in Airflow ends the trainer within seconds and leaves nothing behind."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import quote

import psutil

from tests.e2e import data
from tests.services.platform_client import PATIENCE, PlatformClient

SLOW = data.IRIS.replace("min = 50\nmax = 500", "min = 2000\nmax = 2500").replace(
    "n_trials = 5", "n_trials = 200"
)


def trainers(team: str, name: str) -> list[psutil.Process]:
    """Return the trainer's processes of a job, found by their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline() if process.name() != "sh" else []  # the shell that keeps its exit code
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
        if "train" in line and "--team" in line and line[line.index("--team") + 1] == team and name in line:
            found.append(process)
    return found


def test_cancelling_stops_the_trainer(platform: PlatformClient):
    platform.drop("lab", "slow", SLOW, data.iris())
    platform.wait_task("lab", "slow", "search", "deferred")
    end = time.monotonic() + PATIENCE
    while not platform.status("lab", "slow")["message"].startswith("training"):
        assert time.monotonic() < end, platform.status("lab", "slow")
        time.sleep(0.5)
    (trainer,) = trainers("lab", "slow")
    group = [trainer, *trainer.children(recursive=True)]
    scratch = Path(trainer.cwd())
    assert scratch.is_dir()
    (run,) = platform.runs("lab", "slow")

    path = f"/dags/dmls.lab.slow/dagRuns/{quote(run['dag_run_id'])}"
    platform.airflow("PATCH", path, {"state": "failed"})
    psutil.wait_procs(group, timeout=120)  # It takes some three seconds.

    assert not [p for p in group if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not trainers("lab", "slow")
    gone = time.monotonic() + 120
    while scratch.exists() and time.monotonic() < gone:
        time.sleep(0.2)
    assert not scratch.exists()
    while "was stopped" not in platform.status("lab", "slow")["message"]:
        assert time.monotonic() < gone, platform.status("lab", "slow")
        time.sleep(0.2)
