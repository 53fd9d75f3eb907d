"""A platform of an older commit, upgraded to this one: whether jobs, models, keys and history are kept.

A git worktree of the commit gets an environment of its own (``make setup``), starts a platform, trains and
serves jobs, and stops. This checkout then starts the same state folder: everything is compared, ``dmls
doctor`` must be content, and each job is submitted again with other data. At last the older commit starts
over the new state: it must refuse that and say why, or serve the jobs, and harm nothing. It exits with 1 if
anything is missing or different.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.client import connect
from tests.bench.report import Row, run
from tests.e2e import data
from tests.services.demo_platform import NO_ENGINE
from tests.services.platform_client import PlatformClient

ROOT = Path(__file__).resolve().parents[2]
TEAM = "upgrade"
SPEC = data.SMALL_IRIS + '[deploy]\nmode = "auto"\n'
COLUMNS, ROW = ("sepal_length", "sepal_width", "petal_length", "petal_width"), [[5.1, 3.5, 1.4, 0.2]]
API = f"/dmls/api/v1/jobs/{TEAM}"
SECONDS, HEALING = 900, 180
STARTED = "started"


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Run the older platform, upgrade it, go back, and compare."""
    jobs = [f"job{number}" for number in range(arguments.jobs)]
    with tempfile.TemporaryDirectory(prefix="dmls-upgrade-") as scratch:
        # As root, PostgreSQL runs as another user, with the programs of the older environment.
        Path(scratch).chmod(0o755)
        home = Path(scratch) / "home" / ".dmls"
        home.parent.mkdir()
        with worktree(arguments.commit, Path(scratch) / "old") as old:
            subprocess.run(["make", "setup"], cwd=old, check=True, stdout=subprocess.DEVNULL)
            with platform(old, home) as client:
                for job in jobs:
                    client.drop(TEAM, job, SPEC, data.iris())
                for job in jobs:
                    client.wait_status(TEAM, job, "deployed", timeout=SECONDS)
                keys = {job: make_key(client, job) for job in jobs}
                before = {job: state(client, job, keys[job]) for job in jobs}
            started = time.monotonic()
            with platform(ROOT, home) as client:
                seconds = time.monotonic() - started
                broken = findings(home)
                wait_until_served(client, jobs)
                after = {job: state(client, job, keys[job]) for job in jobs}
                for job in jobs:
                    client.drop(TEAM, job, SPEC, data.iris().replace("5.1,", "5.15,", 1))
                again = [retrained(client, job) for job in jobs]
                latest = {job: state(client, job, keys[job]) for job in jobs}
            back = refusal(old, home)
            with platform(ROOT, home) as client:
                broken += findings(home)
                wait_until_served(client, jobs)
                last = {job: state(client, job, keys[job]) for job in jobs}
    different = [job for job in jobs if before[job] != after[job] or latest[job] != last[job]]
    for job in different:
        for one, other in ((before, after), (latest, last)):
            changed = {name: [value, other[job][name]] for name, value in one[job].items()}
            print(job, {name: pair for name, pair in changed.items() if pair[0] != pair[1]})
    row = {"from": arguments.commit, "jobs": len(jobs), "kept": len(jobs) - len(different)}
    row |= {"trained again": sum(again), "start s": seconds, "broken": len(broken)}
    row["back"] = "refused" if "later" in back else back
    if different or broken or not all(again) or row["back"] not in (STARTED, "refused"):
        print(*broken, row, sep="\n")
        sys.exit(1)
    return [row]


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """Check out a commit until the end of the block."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", folder, commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", folder], check=True)


@contextmanager
def platform(checkout: Path, home: Path) -> Iterator[PlatformClient]:
    """Start a checkout's platform over a state folder; stop it at the end."""
    dmls = [checkout / ".venv" / "bin" / "dmls"]
    environment = os.environ | {"DMLS_HOME": str(home), "DOCKER_HOST": NO_ENGINE}
    try:
        subprocess.run([*dmls, "up"], env=environment, check=True, cwd=home.parent)
        yield PlatformClient(home / "platform.json")
    finally:
        subprocess.run([*dmls, "down"], env=environment, check=True, cwd=home.parent)


def make_key(client: PlatformClient, job: str) -> str:
    """Return a new API key of a job."""
    _, answer = client._call("POST", f"{API}/{job}/keys", {"name": "upgrade", "days": None})
    key: str = answer["key"]
    return key


def findings(home: Path) -> list[str]:
    """Return what ``dmls doctor`` says is broken, some time after the start."""
    dmls, environment = ROOT / ".venv/bin/dmls", os.environ | {"DMLS_HOME": str(home)}
    end = time.monotonic() + HEALING
    while True:
        done = subprocess.run([dmls, "doctor", "--json"], env=environment, capture_output=True, check=False)
        checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
        broken = [f"{name}: {one['message']}" for name, one in checks.items() if one["state"] == "broken"]
        # Without an answer of Airflow in time, there is no such check.
        if not checks.get("airflow watchers", {"message": ""})["message"].startswith("3 watchers"):
            broken.append("three watchers are not there")
        if time.monotonic() > end or not broken:
            return broken
        time.sleep(1)


def refusal(checkout: Path, home: Path) -> str:
    """Return why an older release does not start over this one's state, or ``STARTED``."""
    environment = os.environ | {"DMLS_HOME": str(home), "DOCKER_HOST": NO_ENGINE}
    dmls = checkout / ".venv/bin/dmls"
    done = subprocess.run([dmls, "up"], env=environment, cwd=home.parent, capture_output=True, text=True)
    if done.returncode == 0:
        subprocess.run([dmls, "down"], env=environment, cwd=home.parent, check=True)
        return STARTED
    return " ".join(done.stderr.split())[-300:]


def state(client: PlatformClient, job: str, key: str) -> dict[str, Any]:
    """Return what must stay as it is over an upgrade."""
    status = client.status(TEAM, job)
    model = f"{TEAM}.{job}"
    remote = connect(f"{TEAM}/{job}", client.settings["airflow_url"], key=key)
    return {
        "state": status["state"],
        "run key": status["run_key"],
        "runs": [(one["dag_run_id"], one["state"], one["end_date"]) for one in client.runs(TEAM, job)],
        "files": sorted(client.keys(f"runs/{TEAM}/{job}/")),
        "record": client.get(f"registry/jobs/{TEAM}/{job}.json"),
        "champion": client.champion(model)["version"],
        "answer": client.infer(model, ROW),
        "keys": client._call("GET", f"{API}/{job}/keys"),
        "prediction": remote.predict([dict(zip(COLUMNS, ROW[0], strict=True))])[0]["prediction"],
    }


def wait_until_served(client: PlatformClient, jobs: list[str]) -> None:
    """Wait until Triton has loaded each model."""
    end = time.monotonic() + SECONDS
    for job in jobs:
        while True:
            try:
                client.infer(f"{TEAM}.{job}", ROW)
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(1)
            else:
                break


def retrained(client: PlatformClient, job: str) -> bool:
    """Return whether a second version of a job runs to its end, and the first run stays."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        states = [one["state"] for one in client.runs(TEAM, job)]
        if len(states) == 2 and "running" not in states and "queued" not in states:
            return states == ["success", "success"]
        time.sleep(1)
    return False


if __name__ == "__main__":
    run(__doc__, measure, ("--commit", "HEAD~1", "the older commit"), ("--jobs", 2, "jobs"))
