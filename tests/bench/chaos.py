"""Faults on a whole platform for some minutes, and a ledger of what was lost, doubled or served wrongly.

`make chaos MINUTES=10` starts an embedded platform of its own, submits small jobs all the time, some of them
twice, and meanwhile kills and stops services, fills the disk of S3, and drops packets to a service, some or
all. Then the faults end, and the ledger asks Airflow, S3, MLflow and Triton what became of each submission.
It exits with 1 if anything was lost, doubled or served wrongly.

As root it runs in a network namespace and with a small disk of its own; without root, no packet is lost and
no disk is full. tests/faults/test_chaos.py is a short part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.devstack.platform import Platform
from dmls_core.devstack.private_files import make_private_folder
from dmls_core.devstack.triton import find_server
from tests.bench.report import Row, run
from tests.e2e import data
from tests.services.platform_client import PlatformClient
from tests.services.platform_home import PlatformHome

SERVICES = (
    "s3",
    "postgres",
    "mlflow",
    "triton",
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-triggerer",
    "airflow-dag-processor",
)
PORTS = {"s3": "s3", "mlflow": "mlflow", "triton": "triton_grpc", "airflow-api-server": "airflow"}
SPEC = data.SMALL_IRIS + '[deploy]\nmode = "auto"\n'
TRIALS = 2
TEAM = "chaos"
SUBMISSION_SECONDS = 20.0
DISK_BYTES = 16 << 30
"""Size of S3's disk, of which no byte is allocated before it is written."""

END_SECONDS = 900
"""Time for all jobs to end once the faults have ended."""

SCRATCH = "DMLS_CHAOS_SCRATCH"


class Faults:
    """One fault after another, until the block ends."""

    def __init__(self, home: PlatformHome, disk: Path | None, seed: int) -> None:
        self.home, self._disk, self._draw = home, disk, random.Random(seed)
        self.count: Counter[str] = Counter()
        kinds: dict[str, Callable[[str], Iterator[None]]] = {"kill": self._kill, "stop": self._stop}
        if os.geteuid() == 0:
            kinds |= {"lost packets": self._lose_all, "slow network": self._lose_some}
        if disk:
            kinds["full disk"] = self._fill
        self._kinds = kinds

    def until(self, end: float) -> None:
        """Cause faults until the moment ``end``; each lasts some seconds and is undone."""
        while time.monotonic() < end:
            kind, service = self._draw.choice(sorted(self._kinds)), self._draw.choice(SERVICES)
            self.count[kind] += 1
            print(f"{kind}: {'s3' if kind == 'full disk' else service}", flush=True)
            with contextmanager(self._kinds[kind])(service):
                time.sleep(self._draw.uniform(3, 12))
            time.sleep(self._draw.uniform(3, 12))

    def _kill(self, service: str) -> Iterator[None]:
        with suppress(ProcessLookupError, StopIteration):
            if pid := self.home.main_pid(service):
                os.kill(pid, signal.SIGKILL)
        yield

    def _stop(self, service: str) -> Iterator[None]:
        stopped = [marked.process for marked in self.home.processes(service)]
        self._signal(stopped, signal.SIGSTOP)
        yield
        self._signal(stopped, signal.SIGCONT)

    @staticmethod
    def _signal(processes: list[Any], number: int) -> None:
        for process in processes:
            with suppress(Exception):
                process.send_signal(number)

    def _lose_all(self, service: str) -> Iterator[None]:
        yield from self._drop(service)

    def _lose_some(self, service: str) -> Iterator[None]:
        yield from self._drop(service, "-m", "statistic", "--mode", "random", "--probability", "0.3")

    def _drop(self, service: str, *match: str) -> Iterator[None]:
        port = self.home.identity["ports"][PORTS.get(service, "s3")]
        rule = ["INPUT", "-p", "tcp", "--dport", str(port), *match, "-j", "DROP"]
        subprocess.run(["iptables", "-I", *rule], check=True)
        yield
        subprocess.run(["iptables", "-D", *rule], check=True)

    def _fill(self, _: str) -> Iterator[None]:
        assert self._disk
        filler = self._disk / "filler"
        with filler.open("wb") as file:
            left = shutil.disk_usage(self._disk).free
            while left > 1 << 12:
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), file.tell(), left)
                    file.seek(left, os.SEEK_CUR)
                left //= 2
        yield
        filler.unlink()


class Submitter:
    """Submits a job every few seconds until the block ends; a third of them twice, with the same content."""

    def __init__(self, client: PlatformClient, seed: int) -> None:
        self._client, self._draw, self._stop = client, random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self.jobs: list[str] = []
        self.again = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _submit(self) -> None:
        while not self._stop.is_set():
            name = f"job{len(self.jobs):03d}"
            self.jobs.append(name)
            self._drop(name)
            if self._draw.random() < 1 / 3:
                self.again += 1
                self._drop(self._draw.choice(self.jobs))
            self._stop.wait(self._draw.uniform(0.5, 1.5) * SUBMISSION_SECONDS)

    def _drop(self, name: str) -> None:
        """Put the files as a user does: again, until S3 has taken them."""
        while True:
            with suppress(Exception):
                self._client.drop(TEAM, name, SPEC, data.iris())
                return
            time.sleep(1)


class Asker:
    """Asks the first job's model all the time, once it is served; counts errors and other answers."""

    def __init__(self, client: PlatformClient) -> None:
        self._client, self._stop = client, threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.right = self.failed = self.wrong = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        expected: list[float] = []
        while not self._stop.wait(0.05):
            try:
                found = self._client.infer(f"{TEAM}.job000", [[5.1, 3.5, 1.4, 0.2]])
            except Exception:  # noqa: BLE001 - whatever a fault causes counts
                self.failed += bool(expected)
                continue
            expected = expected or found
            self.right, self.wrong = self.right + (found == expected), self.wrong + (found != expected)


def settle(client: PlatformClient, name: str, end: float) -> dict[str, Any]:
    """Return a job's last status: deployed, or what it was at the moment ``end``."""
    status: dict[str, Any] = {"state": "unanswered", "message": ""}
    while True:
        with suppress(Exception):
            status = client.status(TEAM, name)
        if status["state"] == "deployed" or time.monotonic() > end:
            return status
        time.sleep(0.5)


def check(client: PlatformClient, name: str, end: float) -> dict[str, str]:
    """Return what is wrong with a job, by kind: lost, doubled or wrong; empty if nothing is."""
    status = settle(client, name, end)
    if status["state"] != "deployed":
        return {"lost": f"{name} is {status['state']}: {status['message']}"}
    found = {}
    runs = client.runs(TEAM, name)
    # A job is deployed before the last task of its run has ended.
    while any(one["state"] in ("queued", "running") for one in runs) and time.monotonic() < end:
        time.sleep(0.5)
        runs = client.runs(TEAM, name)
    trials = [key for key in client.keys(f"runs/{TEAM}/{name}/") if "/trials/" in key]
    path = f"/api/2.0/mlflow/model-versions/search?filter=name%3D'{TEAM}.{name}'"
    versions = json.loads(client.mlflow(path)).get("model_versions", [])
    counts = {"runs": (len(runs), 1), "trials": (len(trials), TRIALS), "versions": (len(versions), 1)}
    for what, (count, right) in counts.items():
        if count != right:
            found["doubled" if count > right else "lost"] = f"{name}: {count} {what}, not {right}"
    if [one["state"] for one in runs] != ["success"] * len(runs):
        found["wrong"] = f"{name}: runs are {[one['state'] for one in runs]}"
    if error := unserved(client, name, end):
        found["wrong"] = f"{name}: {error}"
    return found


def unserved(client: PlatformClient, name: str, end: float) -> str:
    """Return why a job's model is not champion or does not answer at the moment ``end``; empty if it does.

    A server that was killed loads its models for some seconds after it answers.
    """
    while True:
        try:
            client.champion(f"{TEAM}.{name}")
            client.infer(f"{TEAM}.{name}", [[5.1, 3.5, 1.4, 0.2]])
        except Exception as error:  # noqa: BLE001 - whatever it is, the model is not served
            if time.monotonic() > end:
                return str(error)
            time.sleep(0.5)
        else:
            return ""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Run the campaign; exit with 1 if the ledger does not balance."""
    scratch = Path(os.environ[SCRATCH])
    with platform(scratch) as (home, disk):
        client = PlatformClient(home.folder / "platform.json")
        faults = Faults(home, disk, arguments.seed)
        with Submitter(client, arguments.seed) as submitter, Asker(client) as asker:
            faults.until(time.monotonic() + 60 * arguments.minutes)
        home.platform.up()  # returns when what the last fault ended answers again
        end = time.monotonic() + END_SECONDS
        problems: Counter[str] = Counter()
        for name in submitter.jobs:
            for kind, text in check(client, name, end).items():
                problems[kind] += 1
                print(f"{kind}: {text}", flush=True)
    row = {"minutes": arguments.minutes, **{kind: faults.count[kind] for kind in sorted(faults.count)}}
    row |= {"jobs": len(submitter.jobs), "submitted again": submitter.again}
    row |= {kind: problems[kind] for kind in ("lost", "doubled", "wrong")}
    row |= {"answers": asker.right, "wrong answers": asker.wrong, "failed requests": asker.failed}
    if problems or asker.wrong:
        print(row)
        sys.exit(1)
    return [row]


@contextmanager
def platform(scratch: Path) -> Iterator[tuple[PlatformHome, Path | None]]:
    """Start a platform with the process runner, and S3's disk of its own if that can be had."""
    os.environ["DOCKER_HOST"] = "unix:///nonexistent.sock"
    home = PlatformHome(scratch / ".dmls")
    data_folder = scratch / ".dmls" / "s3" / "data"
    with small_disk(scratch, data_folder) as disk:
        try:
            Platform(home.folder).up()
            yield home, disk
        finally:
            home.platform.down()


@contextmanager
def small_disk(scratch: Path, folder: Path) -> Iterator[Path | None]:
    """Mount a file system in a sparse file at ``folder``; yield ``None`` where that is not possible."""
    make_private_folder(folder.parent)
    make_private_folder(folder)
    image = scratch / "disk"
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    commands = (["mkfs.ext4", "-q", "-m", "0", image], ["mount", "-o", "loop", image, folder])
    mounted = os.geteuid() == 0 and all(
        subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
        for command in commands
    )
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=False)


def main() -> None:
    """Enter a network namespace as root, with Triton's server installed before; then run."""
    if SCRATCH not in os.environ:
        with tempfile.TemporaryDirectory(prefix="dmls-chaos-") as scratch:
            state = make_private_folder(Path(scratch) / ".dmls")
            # Now, since the namespace reaches no package index.
            find_server(state, dict(os.environ), state / "triton.log")
            command = [sys.executable, *sys.argv]
            if os.geteuid() == 0:
                command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
            sys.exit(subprocess.run(command, env=os.environ | {SCRATCH: scratch}, check=False).returncode)
    run(__doc__, measure, ("--minutes", 10.0, "how long faults happen"), ("--seed", 0, "of the faults"))


if __name__ == "__main__":
    main()
