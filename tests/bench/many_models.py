"""Many small models on one Triton: memory for each, and the time of first and further requests.

Run it with ``python tests/bench/many_models.py --models 200``. Half of the table is for models that share a
process, the other for ``--own`` models with processes of their own, on another server. Requests are of one
row, over gRPC, to table endpoints. Compare the ratios: other work on the machine changes all figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.data.encoder import Encoder
from dmls_core.serving import Repository, TritonClient
from dmls_core.serving.triton.model_config import table_name
from dmls_core.serving.triton.tensors import table_tensors
from tests.bench.report import Row, run
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.trained_run import trained_run, user_rows

SHARED_BYTES = "4000000"
VARIABLE = "DMLS_SERVING_SHARED_BYTES"
MEGA = 1e6


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Serve the models both ways, and ask them."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        folder = Path(scratch) / "run"
        trained_run(folder, n_trees=arguments.trees)
        rows = []
        for how, count in (("shared", arguments.models), ("own", arguments.own)):
            os.environ[VARIABLE] = SHARED_BYTES if how == "shared" else ""
            place = Path(scratch) / how
            place.mkdir()
            triton = new_triton(place)
            triton.start()
            try:
                rows.append({"processes": how, **_serve(triton, folder / "model", count, arguments.requests)})
            finally:
                triton.stop()
    return rows


def _serve(triton: TritonProcess, folder: Path, count: int, requests: int) -> Row:
    names = [f"bench.model{number}" for number in range(count)]
    with triton.client() as client:
        _load(triton.repository, client, folder, "bench.before")  # the shared process itself is not counted
        client.infer_tensors(table_name("bench.before"), _tensors(folder))
        before = _memory(triton)
        started = _cpu_seconds(triton)
        for name in names:
            _load(triton.repository, client, folder, name)
        loaded, cpu = _memory(triton), _cpu_seconds(triton) - started
        first = [_ask(client, name, folder) for name in names]
        used = _memory(triton)
        again = {clients: _concurrently(client, names, folder, clients, requests) for clients in (1, 8)}
    row: Row = {
        "models": count,
        "checkpoint KB": (folder / "checkpoint.tl").stat().st_size / 1e3,
        "load CPU ms": 1e3 * cpu / count,
        "loaded MB/model": (loaded - before) / count / MEGA,
        "used MB/model": (used - before) / count / MEGA,
        "first p50 ms": statistics.median(first),
        "first max ms": max(first),
    }
    for clients, times in again.items():
        row |= {
            f"{clients} clients p50 ms": statistics.median(times),
            f"{clients} clients max ms": max(times),
        }
    return row


def _load(repository: Repository, client: TritonClient, folder: Path, name: str) -> None:
    """Serve a model without staging it, which would load it twice."""
    with repository.lock(name):
        version = repository.add(name, folder)
        repository.serve(name, version)
        repository.confirm(name, version)
    client.load(name)
    client.load(table_name(name))


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    encoder = Encoder.from_json(json.loads((folder / "encoder.json").read_text()))
    return table_tensors(encoder, user_rows(1))


def _ask(client: TritonClient, name: str, folder: Path) -> float:
    tensors = _tensors(folder)
    started = time.perf_counter()
    client.infer_tensors(table_name(name), tensors)
    return 1e3 * (time.perf_counter() - started)


def _concurrently(
    client: TritonClient, names: list[str], folder: Path, clients: int, requests: int
) -> list[float]:
    """Return the milliseconds of requests to models at random, by some clients at once."""
    times: list[float] = []

    def work(seed: int) -> None:
        chosen = np.random.default_rng(seed).integers(0, len(names), requests // clients)
        with client.again(60.0) as own:
            _ask(own, names[0], folder)  # connects
            times.extend(_ask(own, names[i], folder) for i in chosen)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def _processes(triton: TritonProcess) -> list[psutil.Process]:
    server = psutil.Process(triton.process.pid)
    return [server, *server.children(recursive=True)]


def _memory(triton: TritonProcess) -> float:
    """Return the bytes that Triton and its processes hold, shared pages divided among them."""
    return sum(process.memory_full_info().pss for process in _processes(triton))


def _cpu_seconds(triton: TritonProcess) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _processes(triton))


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--models", 200, "models that share a process"),
        ("--own", 10, "models with processes of their own"),
        ("--trees", 20, "trees of each model"),
        ("--requests", 2000, "requests of all clients together"),
    )
