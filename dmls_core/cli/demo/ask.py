"""Ask the served model over both protocols with nothing but ``tritonclient``, as a user's program would."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import ServingError

ADDRESS = {"http": "HTTP", "grpc": "gRPC"}


class Answers(NamedTuple):
    """Probabilities per row and class, float32 of shape (n_rows, n_classes), by protocol."""

    http: NDArray[np.float32]
    grpc: NDArray[np.float32]


def ask(http: str, grpc: str, model: str, rows: NDArray[np.float32]) -> Answers:
    """Send the same rows over HTTP and over gRPC.

    Args:
        http: ``host:port`` of Triton's HTTP endpoint.
        grpc: ``host:port`` of its gRPC endpoint.
        model: name of the model.
        rows: float32 of shape (n_rows, n_features).

    Raises:
        ServingError: the two answers differ.
    """
    answers = Answers(_infer("http", http, model, rows), _infer("grpc", grpc, model, rows))
    if not np.array_equal(answers.http, answers.grpc):
        raise ServingError(f"{model} answers over HTTP with {answers.http} and over gRPC with {answers.grpc}")
    return answers


def _infer(protocol: str, address: str, model: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    # No types in this library: it is imported by name so that both protocols take the same few lines.
    library: Any = import_module(f"tritonclient.{protocol}")
    client = library.InferenceServerClient(address)
    try:
        tensor = library.InferInput("input__0", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        answer: NDArray[np.float32] = client.infer(model, [tensor]).as_numpy("output__0")
    finally:
        client.close()
    return answer
