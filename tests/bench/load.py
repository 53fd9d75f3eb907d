"""Load on a server by clients that each wait for an answer before they ask again."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from dmls_core.data.encoder import Encoder
from dmls_core.serving.model_config import table_name
from dmls_core.serving.tensors import TEXT, read_columns

Plan = Callable[[], Callable[[], object]]
"""Connects, and returns what asks once; every client has a connection of its own."""

WARM_SECONDS = 0.5


@dataclass
class Asked:
    """Milliseconds of each answered request, in ``seconds`` of load, and how many failed."""

    milliseconds: list[float]
    seconds: float
    failed: int


def ask_all(plan: Plan, clients: int, seconds: float) -> Asked:
    """Ask by several clients at once for a while, after a warm-up."""
    taken: list[float] = []
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
            if begun >= start:
                taken.append((time.perf_counter() - begun) * 1000)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Asked(taken, seconds, len(failures))


def triton_raw(protocol: str, address: str, model: str, rows: np.ndarray) -> Plan:
    """Ask the raw endpoint for encoded rows."""

    def connect() -> Callable[[], object]:
        library = import_module(f"tritonclient.{protocol}")
        client = library.InferenceServerClient(address)
        tensor = library.InferInput("input__0", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        return lambda: client.infer(model, [tensor]).as_numpy("output__0")

    return connect


def triton_table(address: str, model: str, encoder: Encoder, columns: Mapping[str, Sequence[Any]]) -> Plan:
    """Ask the table endpoint for raw rows."""
    kinds = {f.name: TEXT if f.as_json()["kind"] == "category" else "TYPE_FP64" for f in encoder.features}
    values = read_columns(columns, kinds, [encoder.feature_names])

    def connect() -> Callable[[], object]:
        library = import_module("tritonclient.grpc")
        client = library.InferenceServerClient(address)
        tensors = []
        for name, column in values.items():
            kind = "BYTES" if kinds[name] == TEXT else "FP64"
            tensors.append(library.InferInput(name, [len(column), 1], kind))
            tensors[-1].set_data_from_numpy(column.reshape(-1, 1))
        return lambda: client.infer(table_name(model), tensors).as_numpy("probabilities")

    return connect


def http_json(address: str, path: str, body: Mapping[str, Any]) -> Plan:
    """Ask an HTTP server with JSON over a connection that stays open."""
    content = json.dumps(body)

    def connect() -> Callable[[], object]:
        connection = http.client.HTTPConnection(address, timeout=60)

        def ask() -> object:
            connection.request("POST", path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise ValueError(text[:200])
            return json.loads(text)

        return ask

    return connect
