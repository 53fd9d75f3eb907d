"""Load on a server by clients that each wait for an answer before they send the next request.

Requests are made before the load and answers are not parsed, so that every server has an equal client.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import psutil

from tests.bench.report import Row

Plan = Callable[[], Callable[[], Any]]
"""Connects, and returns what sends one request; every client has a connection of its own."""

WARM_SECONDS = 0.5


def ask_all(plan: Plan, clients: int, seconds: float, process: int) -> Row:
    """Send requests by several clients for a while, after a warm-up, to the server with the process id."""
    taken: list[tuple[float, float]] = []
    failures: list[str] = []
    start = time.perf_counter() + WARM_SECONDS

    def work() -> None:
        ask = plan()
        while (begun := time.perf_counter()) < start + seconds:
            try:
                ask()
            except Exception as error:  # noqa: BLE001  it is counted
                failures.append(str(error))
                continue
            taken.append((begun, time.perf_counter()))

    before = cpu_seconds(process)
    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used, elapsed = cpu_seconds(process) - before, time.perf_counter() - start
    times = [ended - begun for begun, ended in taken if ended >= start]
    return {
        "requests/s": len(times) / elapsed,
        "p50 ms": float(np.percentile(times, 50)) * 1000 if times else float("nan"),
        "p99 ms": float(np.percentile(times, 99)) * 1000 if times else float("nan"),
        "server CPU ms": 1000 * used / max(1, len(taken)),  # the warm-up too: from idle to idle
        "failed": len(failures),
    }


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process and of those that it started."""
    top = psutil.Process(process)
    times = [one.cpu_times() for one in (top, *top.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def http_post(address: str, path: str, content: bytes, headers: Mapping[str, str] | None = None) -> Plan:
    """Post the same body again and again over a connection that stays open; the answer is its body."""
    headers = headers or {"Content-Type": "application/json"}

    def connect() -> Callable[[], bytes]:
        connection = http.client.HTTPConnection(address, timeout=60)

        def ask() -> bytes:
            connection.request("POST", path, content, headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise ValueError(body[:200])
            return body

        return ask

    return connect


def triton_http(address: str, model: str, rows: np.ndarray) -> Plan:
    """Send encoded rows to Triton over HTTP, as a binary tensor."""
    library = import_module("tritonclient.http")
    tensor = library.InferInput("input__0", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    content, size = library.InferenceServerClient.generate_request_body(
        [tensor], outputs=[library.InferRequestedOutput("output__0", binary_data=True)]
    )
    return http_post(
        address, f"/v2/models/{model}/infer", content, {"Inference-Header-Content-Length": str(size)}
    )


def triton_grpc(address: str, model: str, rows: np.ndarray) -> Plan:
    """Send encoded rows to Triton over gRPC."""
    library = import_module("tritonclient.grpc")
    tensor = library.InferInput("input__0", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)

    def connect() -> Callable[[], object]:
        client = library.InferenceServerClient(address)
        return lambda: client.infer(model, [tensor])

    return connect
