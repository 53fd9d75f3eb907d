"""Requests while versions are deployed, fail and are rolled back; starts and ends its own Triton."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.errors import ServingError
from dmls_core.serving import Deployment, Repository, TritonClient
from dmls_core.serving.formats.treelite import checkpoint
from tests.bench.report import Row, run
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.trained_run import trained_run

NAME = "bench.parts"
FAILING = ("truncated", "wrong answers", "wrong shape", "no encoder", "too slow")


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Start a Triton server, and change its versions under load."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        triton = new_triton(Path(scratch))
        triton.start()
        try:
            return [while_versions_change(triton, Path(scratch), arguments.deployments)]
        finally:
            triton.stop()


def while_versions_change(triton: TritonProcess, base: Path, deployments: int) -> Row:
    """Ask with 8 clients while versions are deployed, fail and are rolled back."""
    folders = [base / f"run{seed}" for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        trained_run(folder, seed=seed)
    watched = Watched(triton, [folder / "model" for folder in folders])
    with triton.client() as client:
        changes = Changes(triton.repository, client, base, [folder / "model" for folder in folders])
        changes.deploy(0)
        with watched:
            began = time.monotonic()
            for number in range(1, deployments + 1):
                changes.deploy(number)
                if number % 4 == 0:
                    changes.fail(number)
                    changes.roll_back()
            seconds = time.monotonic() - began
    return {
        "deployments": deployments,
        "failed ones": changes.refused,
        "rollbacks": changes.rollbacks,
        "seconds": seconds,
        "HTTP answers": watched.answers["http"],
        "gRPC answers": watched.answers["grpc"],
        "failed requests": len(watched.failures),
        "wrong answers": sum(not changes.was_live(*span) for span in watched.spans),
    }


class Watched:
    """Eight clients that note which model answered each of their requests, and when."""

    def __init__(self, triton: TritonProcess, models: list[Path]) -> None:
        golden = json.loads((models[0] / "golden.json").read_text())
        self._rows = np.asarray(golden["encoded"], np.float32)[:8]
        loaded = [checkpoint.load(folder / "checkpoint.tl") for folder in models]
        self._known = [checkpoint.predict(model, self._rows) for model in loaded]
        self._triton, self._stop = triton, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=[p]) for p in ("http", "grpc") * 4]
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self.spans: list[tuple[float, float, int]] = []

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, protocol: str) -> None:
        with self._triton.client(timeout=20.0) as client:
            while not self._stop.is_set():
                begun = time.monotonic()
                try:
                    got = client.infer(NAME, self._rows, protocol=protocol)
                except ServingError as error:
                    self.failures.append(str(error))
                    continue
                kinds = [i for i, known in enumerate(self._known) if np.abs(got - known).max() <= 1e-6]
                self.spans.append((begun, time.monotonic(), kinds[0] if kinds else -1))
                self.answers[protocol] += 1


class Changes:
    """Versions made of two forests in turn, and which forest was live when."""

    def __init__(self, repository: Repository, client: TritonClient, base: Path, models: list[Path]) -> None:
        self._repository, self._client, self._base, self._models = repository, client, base, models
        self._forest: dict[int, int] = {}
        self._history: list[tuple[float, float, int]] = []
        self.refused = self.rollbacks = 0

    def deploy(self, number: int) -> None:
        """Deploy the forest that is not live, as a version of its own."""
        kind = number % 2
        folder = _variant(self._models[kind], self._base / f"v{number}", number)
        begun = time.monotonic()
        version = Deployment(self._repository, self._client, NAME).deploy(folder).version
        self._forest[version] = kind
        self._history.append((begun, time.monotonic(), kind))

    def fail(self, number: int) -> None:
        """Try to deploy what must be refused."""
        arguments = _failing(self.refused, self._models[1 - number % 2], self._base)
        try:
            Deployment(self._repository, self._client, NAME).deploy(**arguments)
        except ServingError:
            self.refused += 1

    def roll_back(self) -> None:
        """Go back to the version before."""
        begun = time.monotonic()
        version = Deployment(self._repository, self._client, NAME).rollback().version
        self._history.append((begun, time.monotonic(), self._forest[version]))
        self.rollbacks += 1

    def was_live(self, begun: float, ended: float, kind: int) -> bool:
        """Say whether a forest was live, or went live, at some moment of a request."""
        before = [k for start, done, k in self._history if done <= begun][-1:]
        return kind in before or any(
            k == kind and start <= ended and done >= begun for start, done, k in self._history
        )


def _variant(source: Path, target: Path, number: int) -> Path:
    """Copy a model's folder so that it counts as another model."""
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    about = json.loads((target / "model.json").read_text())
    (target / "model.json").write_text(json.dumps(about | {"score": number}))
    return target


def _failing(number: int, source: Path, base: Path) -> dict[str, Any]:
    """Return the arguments of a deployment that must fail, for another reason each time."""
    kind = FAILING[number % len(FAILING)]
    folder = _variant(source, base / f"bad{number}", 1000 + number)
    if kind == "truncated":
        (folder / "checkpoint.tl").write_bytes((folder / "checkpoint.tl").read_bytes()[:500])
    elif kind == "wrong answers":
        golden = json.loads((folder / "golden.json").read_text())
        golden["expected"] = [row[::-1] for row in golden["expected"]]
        (folder / "golden.json").write_text(json.dumps(golden))
    elif kind == "wrong shape":
        about = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps(about | {"n_features": 2}))
    elif kind == "no encoder":
        (folder / "encoder.json").unlink()
    return {"folder": folder, "max_latency_ms": 1e-6 if kind == "too slow" else None}


if __name__ == "__main__":
    run(__doc__, measure, ("--deployments", 20, "under load; one that fails and a rollback to every four"))
