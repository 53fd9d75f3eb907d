"""Prove a deployment: golden rows through the real endpoint must come back as the trainer saw them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import CategoryFeature, Encoder
from dmls_core.errors import ServingError
from dmls_core.serving.client import PROTOCOLS, TritonClient
from dmls_core.serving.model_config import LABEL, PROBABILITIES, VALUE, VERSION, table_name
from dmls_core.serving.repository import Repository
from dmls_core.serving.tensors import TEXT, Columns, read_columns
from dmls_core.serving.tolerance import rows_that_differ

BATCH = 64
"""Rows per request, after a first request of a single row."""

TIMED_REQUESTS = 25
"""Requests of a single row whose median is the endpoint's latency; the first ones are not counted."""

WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found of a version that proved itself.

    Attributes:
        rows: golden rows, each of which agreed over both protocols.
        milliseconds: median of a request for one row, over the slower protocol.
    """

    rows: int
    milliseconds: float


def verify(repository: Repository, client: TritonClient, model: str, version: int) -> int:
    """Send the golden rows of the version that is served to Triton over HTTP and gRPC.

    Returns:
        The number of rows, each of which agreed over both protocols.

    Raises:
        ServingError: as ``prove`` does.
        NotFoundError: the repository has no such version.
    """
    return prove(repository, client, model, version, model, None).rows


def prove(
    repository: Repository,
    client: TritonClient,
    model: str,
    version: int,
    endpoint: str,
    max_latency_ms: float | None,
) -> Proof:
    """Send a version's golden rows to Triton over HTTP and gRPC, and see how long one row takes.

    Args:
        repository: holds the golden rows beside the checkpoint.
        client: the Triton server.
        model: ``<team>.<job>``.
        version: the version.
        endpoint: the name under which Triton serves it: the model's own, or the candidate's.
        max_latency_ms: longest median of a request for one row, if there is a limit.

    Raises:
        ServingError: a row came back different (the message names the row, what was expected, what came
            and over which protocol), it takes too long, or Triton does not answer.
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
    times = []
    for protocol in PROTOCOLS:
        answers = np.empty_like(expected)
        for start, stop in _batches(len(rows)):
            got = client.infer(endpoint, rows[start:stop], version=version, protocol=protocol)
            if got.shape[1] != expected.shape[1]:
                raise ServingError(
                    f"{place} over {protocol}: a row expected {expected.shape[1]} outputs, got {got.shape[1]}"
                )
            answers[start:stop] = got
        _compare(f"{place} over {protocol}", expected, answers, golden["labels"])
        taken = []
        for number in range(WARM_UP + TIMED_REQUESTS):
            row = number % len(rows)
            before = time.perf_counter()
            client.infer(endpoint, rows[row : row + 1], version=version, protocol=protocol)
            taken.append((time.perf_counter() - before) * 1000)
        times.append(statistics.median(taken[WARM_UP:]))
        if max_latency_ms is not None and times[-1] > max_latency_ms:
            raise ServingError(
                f"{place} over {protocol}: a request for one row takes {times[-1]:.3g} ms (median of "
                f"{TIMED_REQUESTS}), and [deploy] max_latency_ms is {max_latency_ms:g}"
            )
    _prove_table(place, client, endpoint, version, encoder, golden, expected)
    return Proof(len(rows), max(times))


def _prove_table(
    place: str,
    client: TritonClient,
    endpoint: str,
    version: int,
    encoder: Encoder,
    golden: Mapping[str, Any],
    expected: NDArray[np.float32],
) -> None:
    """Send the golden rows' own columns to the table endpoint, and hold labels and numbers against them."""
    columns = table_tensors(encoder, golden["columns"])
    labels = golden["labels"]
    for protocol in PROTOCOLS:
        over = f"{place}, its table endpoint over {protocol}"
        answers = []
        for start, stop in _batches(len(expected)):
            part = {name: values[start:stop] for name, values in columns.items()}
            answer = client.infer_tensors(table_name(endpoint), part, protocol=protocol)
            if set(answer.as_numpy(VERSION).ravel().tolist()) != {version}:
                raise ServingError(f"{over}: version {answer.as_numpy(VERSION).ravel()[0]} answered")
            if labels is None:
                got = answer.as_numpy(VALUE).reshape(-1, 1)
            else:
                got = answer.as_numpy(PROBABILITIES)
                chosen = [label.decode() for label in answer.as_numpy(LABEL).ravel()]
                if chosen != [labels[i] for i in got.argmax(axis=1)]:
                    raise ServingError(f"{over}: the labels are not those of the highest probabilities")
            answers.append(got)
        _compare(over, expected, np.concatenate(answers), labels)


def table_tensors(encoder: Encoder, columns: Mapping[str, list[Any]]) -> Columns:
    """Return raw values as a table endpoint takes them, each of shape (n_rows, 1)."""
    kinds = {
        feature.name: TEXT if isinstance(feature, CategoryFeature) else "TYPE_FP64"
        for feature in encoder.features
    }
    found = read_columns(columns, kinds, [encoder.feature_names])
    return {name: values.reshape(-1, 1) for name, values in found.items()}


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
    place: str,
    expected: NDArray[np.float32],
    got: NDArray[np.float32],
    labels: list[str] | None,
) -> None:
    """Hold answers to all golden rows against what is expected, both of shape (n_rows, n_outputs).

    Raises:
        ServingError: a row differs.
    """
    wrong = rows_that_differ(expected, got, classification=labels is not None)
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
