"""Prove a deployment: golden rows through the live endpoint must come back as the trainer saw them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import Encoder
from dmls_core.errors import ServingError
from dmls_core.serving.client import PROTOCOLS, TritonClient
from dmls_core.serving.repository import Repository

PROBABILITY_TOLERANCE = 1e-6
"""Largest difference of a probability."""

VALUE_TOLERANCE = 1e-5
"""Largest difference of a value, as a share of the largest: float32 sums depend on their order."""

BATCH = 64
"""Rows per request, after a first request of a single row."""


def verify(repository: Repository, client: TritonClient, model: str, version: int) -> int:
    """Send a version's golden rows to Triton over HTTP and gRPC; record that they all agreed.

    Args:
        repository: holds the golden rows beside the checkpoint.
        client: the Triton server.
        model: ``<team>.<job>``.
        version: the deployed version.

    Returns:
        The number of rows, each of which agreed over both protocols.

    Raises:
        ServingError: a row came back different (the message names the row, what was expected, what came
            and over which protocol), or Triton does not answer.
        NotFoundError: the repository has no such version.
    """
    place = f"{model} version {version}"
    golden = repository.read(model, version, "golden.json")
    rows = np.asarray(golden["encoded"], dtype=np.float32)
    expected = np.asarray(golden["expected"], dtype=np.float32)
    if not len(rows) or len(expected) != len(rows) or not np.isfinite(expected).all():
        raise ServingError(f"{place} has no usable golden rows: there are none, or one expects no number")
    expected = expected.reshape(len(rows), -1)
    encoder = Encoder.from_json(repository.read(model, version, "encoder.json"))
    _check_encoder(place, encoder, golden["columns"], rows)
    for protocol in PROTOCOLS:
        answers = np.empty_like(expected)
        for start, stop in _batches(len(rows)):
            got = client.infer(model, rows[start:stop], version=version, protocol=protocol)
            if got.shape[1] != expected.shape[1]:
                raise ServingError(
                    f"{place} over {protocol}: a row expected {expected.shape[1]} outputs, got {got.shape[1]}"
                )
            answers[start:stop] = got
        _compare(f"{place} over {protocol}", expected, answers, golden["labels"])
    with repository.lock(model):
        repository.confirm(model, version)
    return len(rows)


def _check_encoder(
    place: str, encoder: Encoder, columns: Mapping[str, list[Any]], rows: NDArray[np.float32]
) -> None:
    """Hold the encoder that clients will use against the rows as the trainer encoded them."""
    try:
        encoded = encoder.transform(columns)
    except ValueError as error:
        raise ServingError(f"{place}: the golden rows cannot be encoded: {error}") from error
    if encoded.shape != rows.shape:
        raise ServingError(f"{place}: the encoder made {encoded.shape} of the golden rows, not {rows.shape}")
    wrong = np.argwhere(~((encoded == rows) | (np.isnan(encoded) & np.isnan(rows))))
    if len(wrong):
        row, feature = wrong[0]
        raise ServingError(
            f"{place}: golden row {row} is encoded differently from training: feature {feature} "
            f"expected {rows[row, feature]}, got {encoded[row, feature]}"
        )


def _batches(n_rows: int) -> Iterator[tuple[int, int]]:
    yield 0, 1
    for start in range(1, n_rows, BATCH):
        yield start, min(start + BATCH, n_rows)


def _compare(
    place: str, expected: NDArray[np.float32], got: NDArray[np.float32], labels: list[str] | None
) -> None:
    """Hold answers against what is expected, both of shape (n_rows, n_outputs).

    Raises:
        ServingError: a row differs.
    """
    if labels is None:
        # A value near zero is the difference of larger ones: their size decides what float32 can hold.
        allowed = VALUE_TOLERANCE * np.abs(expected).max()
        right = np.abs(got - expected) <= allowed
    else:
        right = np.abs(got - expected) <= PROBABILITY_TOLERANCE
        right &= (got.argmax(axis=1) == expected.argmax(axis=1))[:, np.newaxis]
    wrong = np.flatnonzero(~right.all(axis=1))  # a NaN is not right either
    if len(wrong):
        row = wrong[0]
        raise ServingError(
            f"{place}: golden row {row} expected {_shown(expected[row], labels)}, "
            f"got {_shown(got[row], labels)}"
        )


def _shown(outputs: NDArray[np.float32], labels: list[str] | None) -> str:
    if labels is None:
        return f"{outputs[0]:.9g}"
    named = ", ".join(f"{label}: {p:.9g}" for label, p in zip(labels, outputs, strict=True))
    return f"{labels[int(outputs.argmax())]!r} ({named})"
