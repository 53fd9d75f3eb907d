"""Two options of Triton that DMLS does not set: a queue policy, and the response cache.

Queue policy: twelve requests, 13 ms apart, to two instances of a model that sleeps for 100 ms. Without idle
instances they take 600 ms. Response cache: the same request for one row again and again, to a forest with and
without the cache, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.serving import TritonClient
from dmls_core.serving.triton.model_config import BATCHING
from tests.bench.report import Row, run
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.table_endpoint import Served
from tests.support.trained_run import trained_run, user_rows

POLICIES = {
    "none": "",
    "max_queue_size": "default_queue_policy { max_queue_size: 1000 }",
    "default_timeout_microseconds": "default_queue_policy { default_timeout_microseconds: 60000000 }",
}
REQUESTS, GAP_SECONDS = 12, 0.013

SLEEPING = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.1)
        rows = [pb_utils.get_input_tensor_by_name(request, "rows").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("same", part)]) for part in rows]
"""
CONFIG = """
name: "sleeping"
backend: "python"
max_batch_size: 1
input [ { name: "rows" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "same" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { POLICY }
"""
NO_CACHE, CACHE = "response_cache { enable: false }", "response_cache { enable: true }"


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Start a server with a response cache, and measure both."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        triton = new_triton(Path(scratch))
        caches = Path(triton.service.command[0]).parent.parent / "caches"
        more = [f"--cache-directory={caches}", f"--cache-config=local,size={64 << 20}"]
        triton.service = replace(triton.service, command=[*triton.service.command, *more])
        triton.start()
        try:
            with triton.client() as client:
                return {
                    "queue policy": _policies(triton, client, arguments.rounds),
                    "response cache": _cache(triton, client, Path(scratch), arguments.rounds),
                }
        finally:
            triton.stop()


def _policies(triton: TritonProcess, client: TritonClient, rounds: int) -> list[Row]:
    from tritonclient import grpc

    folder = triton.repository.root / "sleeping"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(SLEEPING)
    tensor = grpc.InferInput("rows", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 1), np.float32))
    rows: list[Row] = []
    with grpc.InferenceServerClient(client.addresses["grpc"]) as asked:
        for name, policy in POLICIES.items():
            (folder / "config.pbtxt").write_text(CONFIG.replace("POLICY", policy))
            client.load("sleeping")
            taken = []
            for _ in range(rounds):
                answered = threading.Semaphore(0)
                began = time.perf_counter()
                for _ in range(REQUESTS):
                    asked.async_infer("sleeping", [tensor], partial(_release, answered))
                    time.sleep(GAP_SECONDS)
                for _ in range(REQUESTS):
                    assert answered.acquire(timeout=30)
                taken.append(1000 * (time.perf_counter() - began))
            rows.append(
                {
                    "policy": name,
                    "least ms": min(taken),
                    "p50 ms": statistics.median(taken),
                    "most ms": max(taken),
                }
            )
    return rows


def _release(answered: threading.Semaphore, result: object, error: object) -> None:
    assert result is not None, error
    answered.release()


def _cache(triton: TritonProcess, client: TritonClient, scratch: Path, rounds: int) -> list[Row]:
    trained_run(scratch / "run", n_trees=100)
    served = Served(triton.repository, client, scratch / "run")
    row = served.encoder.transform(user_rows(1))
    config = triton.repository.root / served.name / "config.pbtxt"
    plain = config.read_text()
    assert BATCHING in plain
    times: dict[str, list[float]] = {NO_CACHE: [], CACHE: []}
    for _ in range(rounds):
        for option, taken in times.items():
            config.write_text(plain.replace(NO_CACHE, option))
            client.load(served.name)
            for number in range(220):
                began = time.perf_counter()
                client.infer(served.name, row)
                if number >= 20:
                    taken.append(1000 * (time.perf_counter() - began))
    return [
        {"option": option, "p50 ms": statistics.median(taken), "p99 ms": float(np.percentile(taken, 99))}
        for option, taken in times.items()
    ]


if __name__ == "__main__":
    run(__doc__, measure, ("--rounds", 10, "rounds of each measurement"))
