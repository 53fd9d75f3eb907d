"""Latency while versions change: clients at a constant rate over gRPC, and ten deployments.

Each deployment does what a job's tasks ``stage`` and ``promote`` do, in a process of its own. Every answer is
compared with that of the version that gave it. The versions have the same columns and labels, but other
trees, fill values and categories, so a mix of two of them would be wrong.

A request's latency counts from the moment at which it was due. "during" are the requests that were due within
a deployment, in the step "stage" or "promote"; "between" are those of the pauses before each one, so that
whatever else the machine does meets both.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.data.encoder import Encoder
from dmls_core.errors import ServingError
from dmls_core.serving import Deployment, Repository, TritonClient, choose_scaling
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.triton.model_config import PROBABILITIES, VERSION, table_name
from dmls_core.serving.triton.tensors import table_tensors
from tests.bench.report import Row, run
from tests.services.triton_server import new_triton
from tests.support.table_endpoint import change_encoder
from tests.support.trained_run import COLOURS, trained_run, user_rows

NAME = "bench.parts"
N_ROWS = 4
PHASES = ("between", "during", "stage", "promote")


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Deploy versions while clients send requests."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        base = Path(scratch)
        total = arguments.versions + 1
        folders = [_variant(base / f"run{n}", n, arguments.trees) for n in range(total)]
        triton = new_triton(base)
        triton.start()
        try:
            place = (str(triton.context.model_repository), triton.client().addresses)
            with multiprocessing.get_context("spawn").Pool(1) as deployer:
                _change(*place, folders[0])
                clients = Clients(place[1], folders, arguments.clients, arguments.rate)
                with clients:
                    time.sleep(1)  # connected and warm
                    deployer.apply(_change, (*place, folders[1]))
                    changes: list[dict[str, float]] = []
                    phases: dict[str, list[tuple[float, float]]] = {phase: [] for phase in PHASES}
                    for folder in folders[2:]:
                        began = time.perf_counter()
                        time.sleep(arguments.seconds)
                        start = time.perf_counter()
                        changes.append(deployer.apply(_change, (*place, folder)))
                        end = time.perf_counter()
                        promote = end - changes[-1]["measure"] - changes[-1]["promote"]
                        spans = ((began, start), (start, end), (start, promote), (promote, end))
                        for phase, span in zip(PHASES, spans, strict=True):
                            phases[phase].append(span)
        finally:
            triton.stop()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "versions": [_steps(change) for change in changes],
        "requests": clients.rows(phases),
        "answers": [
            {
                "failed": len(clients.failed),
                "wrong": clients.wrong,
                "answers": len(clients.answers),
                "load average": load,
                "cores": os.cpu_count(),
            }
        ],
    }


def _change(repository: str, addresses: dict[Any, str], folder: Path) -> dict[str, float]:
    """Deploy a folder; return the seconds of each step, and those of Triton's loads."""
    taken: dict[str, float] = {"loads": 0.0}
    with TritonClient(addresses["http"], addresses["grpc"]) as client:
        load = client.load

        def timed(name: str) -> None:
            began = time.perf_counter()
            load(name)
            taken["loads"] += time.perf_counter() - began
            part = "table" if name.endswith(".table") else "forest"
            taken[part] = taken.get(part, 0.0) + time.perf_counter() - began

        client.load = timed  # type: ignore[method-assign]
        deployment = Deployment(Repository(repository), client, NAME)
        began = time.perf_counter()
        version = deployment.stage(folder).version
        staged = time.perf_counter()
        choose_scaling(deployment, version)
        measured = time.perf_counter()
        deployment.promote(version)
        ended = time.perf_counter()
    return taken | {"stage": staged - began, "measure": measured - staged, "promote": ended - measured}


def _steps(taken: dict[str, float]) -> Row:
    parts = {f"{name} s": taken[name] for name in ("stage", "measure", "promote")}
    return parts | {f"{part} loaded s": taken.get(part, 0.0) for part in ("forest", "table")}


def _variant(folder: Path, number: int, trees: int) -> Path:
    """Train a forest with fill values and an order of categories of its own."""

    def change(encoder: dict[str, Any]) -> None:
        encoder["features"][0]["fill"] = float(number)
        encoder["features"][2]["categories"] = [*COLOURS[number % 3 :], *COLOURS[: number % 3]]

    trained_run(folder, seed=number, n_trees=trees)
    change_encoder(folder / "model", change)
    return folder / "model"


class Clients:
    """Clients that send requests at a constant rate, to the forest and to the table endpoint in turns."""

    def __init__(self, addresses: dict[Any, str], folders: list[Path], number: int, rate: float) -> None:
        self._addresses, self._stop = addresses, threading.Event()
        columns = user_rows(N_ROWS, seed=8)
        encoders = [Encoder.from_json(json.loads((f / "encoder.json").read_text())) for f in folders]
        models = [checkpoint.load(folder / "checkpoint.tl") for folder in folders]
        self._rows = encoders[0].transform(columns)
        self._tensors = table_tensors(encoders[0], columns)
        self._forest = [checkpoint.predict(model, self._rows) for model in models]
        self._table = [
            checkpoint.predict(model, encoder.transform(columns))
            for model, encoder in zip(models, encoders, strict=True)
        ]
        self._pause = number / rate
        self._threads = [threading.Thread(target=self._ask, args=[n / rate]) for n in range(number)]
        self.failed: list[str] = []
        self.wrong = 0
        self.answers: list[tuple[str, float, float]] = []

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, offset: float) -> None:
        due = time.perf_counter() + offset
        with TritonClient(self._addresses["http"], self._addresses["grpc"], timeout=20.0) as client:
            while not self._stop.is_set():
                for what, ask in (("forest", self._ask_forest), ("table", self._ask_table)):
                    time.sleep(max(0.0, due - time.perf_counter()))
                    try:
                        self.wrong += not ask(client)
                    except ServingError as error:
                        self.failed.append(str(error))
                    self.answers.append((what, due, time.perf_counter()))
                    due += self._pause

    def _ask_forest(self, client: TritonClient) -> bool:
        got = client.infer(NAME, self._rows)
        return any(np.abs(got - known).max() <= 1e-6 for known in self._forest)

    def _ask_table(self, client: TritonClient) -> bool:
        answer = client.infer_tensors(table_name(NAME), self._tensors)
        (version,) = set(answer.as_numpy(VERSION).ravel().tolist())
        return bool(np.abs(answer.as_numpy(PROBABILITIES) - self._table[version - 1]).max() <= 1e-6)

    def rows(self, phases: dict[str, list[tuple[float, float]]]) -> list[Row]:
        """Return the percentiles of the requests due in each phase, and their ratio to the first phase."""
        rows: list[Row] = []
        for what in ("forest", "table"):
            first = 0.0
            for phase, spans in phases.items():
                times = [
                    1000 * (done - due)
                    for kind, due, done in self.answers
                    if kind == what and any(start <= due <= end for start, end in spans)
                ]
                middle, high = (float(np.percentile(times, p)) for p in (50, 99))
                first = first or high
                about = {"requests": what, "phase": phase, "number": len(times), "p50 ms": middle}
                rows.append(about | {"p99 ms": high, "slowest ms": max(times), "p99 ratio": high / first})
        return rows


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--versions", 11, "versions to deploy, the first of them before the clients are timed"),
        ("--clients", 4, "clients"),
        ("--rate", 100.0, "requests per second of all clients together"),
        ("--seconds", 3.0, "seconds before each deployment"),
        ("--trees", 100, "trees of each forest"),
    )
