"""Publishers killed at random moments: whether Triton and MLflow agree afterwards, and when.

Starts and ends its own Triton and MLflow. Each publisher rolls a model back and makes the version champion,
in a process that is killed at a random moment of that; then the repair runs as the DAG ``dmls.repair`` does.
A client asks the model all the time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.errors import ServingError
from dmls_core.monitoring.reconcile import reconcile_all
from dmls_core.serving import Deployment, Repository, TritonClient
from dmls_core.serving.repository.intents import INTENTS, models_in
from dmls_core.store import open_store
from dmls_core.tracking.registry import champion_in_triton, promote_served
from tests.bench.report import Row, run
from tests.services.mlflow_server import mlflow_server
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.trained_run import trained_run

NAME = "bench.killed"


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Start the services and kill the publishers."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        folder = Path(scratch)
        triton = new_triton(folder)
        triton.start()
        try:
            with mlflow_server(folder) as uri:
                register_versions(uri)
                return [kill_publishers(triton, uri, folder, arguments.kills)]
        finally:
            triton.stop()


def register_versions(uri: str) -> None:
    """Register two versions in MLflow, as ``register`` and ``promote`` of a run do."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    client.create_registered_model(NAME)
    for number in (1, 2):
        client.create_model_version(
            NAME, source=f"s3://none/{number}", tags={"dmls.triton_version": str(number)}
        )
    client.set_registered_model_alias(NAME, "champion", "2")


def kill_publishers(triton: TritonProcess, uri: str, folder: Path, kills: int) -> Row:
    """Kill ``kills`` publishers, each within the time that a whole change took before."""
    store = open_store(str(folder / "store"))
    processes = get_context("forkserver")
    processes.set_forkserver_preload(
        ["dmls_core.serving.deployment.deployment", "dmls_core.tracking.registry", "mlflow"]
    )
    with triton.client() as client:
        for seed in (0, 1):
            trained_run(folder / f"run{seed}", seed=seed)
            Deployment(triton.repository, client, NAME).deploy(folder / f"run{seed}" / "model")
        addresses = client.addresses["http"], client.addresses["grpc"]
        draw = random.Random(0)
        whole = [publish_once(processes, triton.repository, addresses, uri, None) for _ in range(5)]
        differed, still_differ, left, seconds = 0, 0, 0, []
        golden = json.loads((folder / "run0" / "model" / "golden.json").read_text())
        with Asking(triton, np.asarray(golden["encoded"], np.float32)[:1]) as asking:
            for _ in range(kills):
                moment = draw.uniform(0.0, max(whole))
                publish_once(processes, triton.repository, addresses, uri, moment)
                left += NAME in models_in(triton.repository.store.list(INTENTS))
                differed += not agree(client, uri)
                began = time.monotonic()
                reconcile_all(
                    store, triton.repository, [client], lambda: {NAME: champion_in_triton(uri, NAME)}
                )
                seconds.append(time.monotonic() - began)
                still_differ += not agree(client, uri)
    return {
        "kills": kills,
        "intents left behind": left,
        "Triton and MLflow differed": differed,
        "differ after the repair": still_differ,
        "median repair s": statistics.median(seconds),
        "longest repair s": max(seconds),
        "requests": asking.answers,
        "failed requests": asking.failures,
    }


def publish_once(processes, repository: Repository, addresses, uri: str, kill_after: float | None) -> float:
    """Run one publisher; kill it ``kill_after`` seconds after it began. Return the seconds that it ran."""
    here, there = processes.Pipe()
    version = 2 if repository.serving(NAME) == 1 else 1
    publisher = processes.Process(
        target=publish, args=(str(repository.root), addresses, uri, version, there), daemon=True
    )
    publisher.start()
    here.recv()
    began = time.monotonic()
    publisher.join(kill_after)
    publisher.kill()
    publisher.join()
    return time.monotonic() - began


def publish(root: str, addresses: tuple[str, str], uri: str, version: int, begun: Connection) -> None:
    """Serve ``version`` and make it champion, in a process of its own."""
    deployment = Deployment(Repository(root), TritonClient(*addresses), NAME)
    begun.send(True)
    deployment.rollback(
        version, finish=lambda served, _: promote_served(uri, NAME, served, deployed_by="a benchmark")
    )


def agree(client: TritonClient, uri: str) -> bool:
    """Say whether Triton serves MLflow's champion."""
    return client.versions(NAME) == (champion_in_triton(uri, NAME),)


class Asking:
    """A client that asks the model until the block ends."""

    def __init__(self, triton: TritonProcess, rows: np.ndarray) -> None:
        self._triton, self._rows, self._stop = triton, rows, threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers = self.failures = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        with self._triton.client(timeout=20.0) as client:
            while not self._stop.wait(0.005):
                try:
                    client.infer(NAME, self._rows)
                    self.answers += 1
                except ServingError:
                    self.failures += 1


if __name__ == "__main__":
    run(__doc__, measure, ("--kills", 500, "publishers to kill"))
