"""Verify a deployment: golden rows sent through the real endpoint must come back as the trainer saw them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import Encoder
from dmls_core.errors import ServingError
from dmls_core.serving.formats.base import ServingFormat
from dmls_core.serving.formats.tolerance import LARGEST, base_tolerance
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.addresses import PROTOCOLS, Protocol
from dmls_core.serving.triton.backends import BackendKind, backend_of
from dmls_core.serving.triton.client import OF_CANDIDATE, OWN_REQUEST, TritonClient
from dmls_core.serving.triton.model_config import LABEL, PROBABILITIES, VALUE, VERSION, table_name
from dmls_core.serving.triton.tensors import table_tensors

BATCH = 64
"""Rows per request, after a first request with a single row."""

_TIMED_REQUESTS = 25
"""Requests with a single row whose median is the endpoint's latency, after ``_WARM_UP`` others."""

_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of verifying a version.

    Attributes:
        rows: golden rows, all of which agreed over both protocols.
        milliseconds: median latency of a request for one row, over the slower protocol.
        backend: what answered, and ``served_by`` in words.
    """

    rows: int
    milliseconds: float
    backend: BackendKind
    served_by: str


@dataclass(frozen=True, slots=True)
class GoldenRows:
    """A version's golden rows and the answers that the trainer recorded for them.

    Attributes:
        version: in the repository.
        format: the version's serving format, which compares the answers.
        columns: raw values by column.
        encoded: shape (n_rows, n_features).
        expected: shape (n_rows, n_outputs).
        labels: ``None`` for a regression.
        tolerance: the model's, as the trainer recorded it.
    """

    model: str
    version: int
    format: ServingFormat
    encoder: Encoder
    columns: dict[str, list[Any]]
    encoded: NDArray[np.float32]
    expected: NDArray[np.float32]
    labels: list[str] | None
    tolerance: float

    @classmethod
    def read(cls, repository: Repository, model: str, version: int) -> Self:
        """Read a version's golden rows and check its encoder on them.

        Raises:
            ServingError: there are no rows, an expected answer is not finite, or the encoder gives other rows
                than in training.
            NotFoundError: the repository has no such version.
        """
        golden = repository.read(model, version, "golden.json")
        encoder_json = repository.read(model, version, "encoder.json")
        encoded = np.asarray(golden["encoded"], dtype=np.float32)
        expected = np.asarray(golden["expected"], dtype=np.float32)
        if not len(encoded) or len(expected) != len(encoded) or not np.isfinite(expected).all():
            raise ServingError(
                f"{model} version {version} has no usable golden rows: there are none, or an expected answer "
                "is not a finite number"
            )
        expected = expected.reshape(len(encoded), -1)
        encoder = Encoder.from_json(encoder_json)
        labels = golden["labels"]
        # Versions written before the tolerance was recorded have that of a few trees.
        tolerance = golden.get("tolerance", base_tolerance(classification=labels is not None))
        if not 0 <= tolerance <= LARGEST:
            raise ServingError(f"{model} version {version}: a tolerance of {tolerance} exceeds {LARGEST}")
        serving = repository.format(model, version)
        rows = cls(model, version, serving, encoder, golden["columns"], encoded, expected, labels, tolerance)
        rows._check_encoder()
        return rows

    def verify(
        self,
        client: TritonClient,
        endpoint: str,
        max_latency_ms: float | None = None,
        *,
        served_table: bool = False,
    ) -> Proof:
        """Send the rows over HTTP and gRPC to the model and its table endpoint, and measure the latency.

        ``endpoint`` is the model's own name, or the candidate's. ``max_latency_ms`` limits the median latency
        of a request for one row, in milliseconds. With ``served_table``, the model's table endpoint hands the
        rows to the candidate.

        Raises:
            ServingError: an answer differs (the message names the row, what was expected, what came and the
                protocol), the latency exceeds the limit, or Triton does not answer.
        """
        self.check(client, endpoint, served_table=served_table)
        latencies = [self._latency(client, endpoint, protocol, max_latency_ms) for protocol in PROTOCOLS]
        backend = backend_of(client.config(endpoint))
        return Proof(len(self.encoded), max(latencies), backend, self.format.describe_backend(backend))

    def check(self, client: TritonClient, endpoint: str, *, served_table: bool = False) -> None:
        """Compare the answers as ``verify`` does, without measuring the latency.

        Raises:
            ServingError: an answer differs, or Triton does not answer.
        """
        for protocol in PROTOCOLS:
            self._verify_model(client, endpoint, protocol)
        for protocol in PROTOCOLS:
            self._verify_table(client, endpoint, protocol, served_table)

    def _verify_model(self, client: TritonClient, endpoint: str, protocol: Protocol) -> None:
        label = f"{self._subject} over {protocol}"
        answers = np.empty_like(self.expected)
        for start, stop in self._batches():
            got = client.infer(endpoint, self.encoded[start:stop], version=self.version, protocol=protocol)
            if got.shape[1] != self.expected.shape[1]:
                raise ServingError(
                    f"{label}: expected {self.expected.shape[1]} outputs per row, got {got.shape[1]}"
                )
            answers[start:stop] = got
        self._compare(label, answers)

    def _latency(
        self, client: TritonClient, endpoint: str, protocol: Protocol, max_latency_ms: float | None
    ) -> float:
        """Return the median latency of a request for one row, in milliseconds."""
        taken = []
        for number in range(_WARM_UP + _TIMED_REQUESTS):
            row = number % len(self.encoded)
            before = time.perf_counter()
            client.infer(endpoint, self.encoded[row : row + 1], version=self.version, protocol=protocol)
            taken.append((time.perf_counter() - before) * 1000)
        median = statistics.median(taken[_WARM_UP:])
        if max_latency_ms is not None and median > max_latency_ms:
            raise ServingError(
                f"{self._subject} over {protocol}: a request for one row takes {median:.3g} ms (median of "
                f"{_TIMED_REQUESTS}); [deploy] max_latency_ms is {max_latency_ms:g}"
            )
        return median

    def _verify_table(
        self, client: TritonClient, endpoint: str, protocol: Protocol, served_table: bool
    ) -> None:
        """Send the raw columns to the table endpoint; compare labels and outputs."""
        table = table_name(self.model if served_table else endpoint)
        request_id = f"{OF_CANDIDATE}{self.version}" if served_table else OWN_REQUEST
        subject = f"{self._subject}, its table endpoint over {protocol}"
        columns = table_tensors(self.encoder, self.columns)
        answers = []
        for start, stop in self._batches():
            part = {name: values[start:stop] for name, values in columns.items()}
            answer = client.infer_tensors(table, part, protocol=protocol, request_id=request_id)
            if set(answer.as_numpy(VERSION).ravel().tolist()) != {self.version}:
                raise ServingError(f"{subject}: version {answer.as_numpy(VERSION).ravel()[0]} answered")
            if self.labels is None:
                got = answer.as_numpy(VALUE).reshape(-1, 1)
            else:
                got = answer.as_numpy(PROBABILITIES)
                chosen = [label.decode() for label in answer.as_numpy(LABEL).ravel()]
                if chosen != [self.labels[i] for i in got.argmax(axis=1)]:
                    raise ServingError(f"{subject}: the labels are not those of the highest probabilities")
            answers.append(got)
        self._compare(subject, np.concatenate(answers))

    def _check_encoder(self) -> None:
        """Compare the encoder's output with the rows as the trainer encoded them."""
        try:
            encoded = self.encoder.transform(self.columns)
        except ValueError as error:
            raise ServingError(f"{self._subject}: the golden rows cannot be encoded: {error}") from error
        if encoded.shape != self.encoded.shape:
            raise ServingError(
                f"{self._subject}: the encoder returned shape {encoded.shape} for the golden rows, expected "
                f"{self.encoded.shape}"
            )
        same = (encoded == self.encoded) | (np.isnan(encoded) & np.isnan(self.encoded))
        wrong = np.argwhere(~same)
        if len(wrong):
            row, feature = wrong[0]
            raise ServingError(
                f"{self._subject}: golden row {row} is encoded differently from training: feature {feature} "
                f"expected {self.encoded[row, feature]}, got {encoded[row, feature]}"
            )

    def _compare(self, label: str, got: NDArray[np.float32]) -> None:
        wrong = self.format.rows_that_differ(
            self.expected, got, classification=self.labels is not None, tolerance=self.tolerance
        )
        if len(wrong):
            row = wrong[0]
            raise ServingError(
                f"{label}: golden row {row} expected {self._shown(self.expected[row])}, "
                f"got {self._shown(got[row])}"
            )

    def _shown(self, outputs: NDArray[np.float32]) -> str:
        if self.labels is None:
            return f"{outputs[0]:.9g}"
        named = ", ".join(f"{label}: {p:.9g}" for label, p in zip(self.labels, outputs, strict=True))
        return f"{self.labels[int(outputs.argmax())]!r} ({named})"

    def _batches(self) -> Iterator[tuple[int, int]]:
        yield 0, 1
        for start in range(1, len(self.encoded), BATCH):
            yield start, min(start + BATCH, len(self.encoded))

    @property
    def _subject(self) -> str:
        return f"{self.model} version {self.version}"
