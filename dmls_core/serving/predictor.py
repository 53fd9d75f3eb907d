"""Predict from the user's own columns to the user's own labels, with the model that Triton serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmls_core.data.encoder import Encoder
from dmls_core.errors import DataError, NotFoundError, ServingError
from dmls_core.serving.client import Protocol, TritonClient
from dmls_core.serving.config import MAX_BATCH_SIZE
from dmls_core.serving.repository import Repository

REQUEST_BYTES = 16 << 20
"""Largest matrix sent in one request: Triton's HTTP endpoint refuses more than 64 MiB."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Answers to rows, in their order.

    Attributes:
        values: labels of a classification, float32 values of a regression; length n_rows.
        probabilities: float32 of shape (n_rows, n_classes), one column per label; ``None``: a regression.
        labels: the classes, ``()`` for a regression.
        version: the version in the Triton repository that answered.
    """

    values: list[str] | NDArray[np.float32]
    probabilities: NDArray[np.float32] | None
    labels: tuple[str, ...]
    version: int


class Predictor:
    """A model that Triton serves, spoken to in the user's own columns.

    The encoder is the one of the very version that answers: when another version goes live between two
    requests, its encoder is read, and the rows at hand are sent again.
    """

    def __init__(
        self, repository: Repository, client: TritonClient, model: str, *, protocol: Protocol = "grpc"
    ) -> None:
        """Find out which version is served.

        Args:
            repository: the repository that Triton reads; it holds each version's encoder.
            client: the Triton server.
            model: ``<team>.<job>``.
            protocol: what to ask over.

        Raises:
            NotFoundError: Triton serves no such model, or a version that the repository does not have.
            ServingError: Triton does not answer.
        """
        self._repository, self._client, self._protocol = repository, client, protocol
        self.model = model
        self.version, self.encoder = self._served()

    def predict(self, columns: Mapping[str, ArrayLike]) -> Predictions:
        """Predict rows given as raw values by column name, each of length n_rows.

        Raises:
            DataError: a column is missing, or a value is not a number where one is needed.
            ServingError: Triton does not answer.
        """
        try:
            outputs = self._infer(columns)
        except ServingError:
            served = self._served()
            if served[0] == self.version:
                raise
            self.version, self.encoder = served
            outputs = self._infer(columns)
        labels = self.encoder.target.labels
        if labels is None:
            return Predictions(outputs[:, 0], None, (), self.version)
        return Predictions(self.encoder.decode(outputs.argmax(axis=1)), outputs, labels, self.version)

    def _infer(self, columns: Mapping[str, ArrayLike]) -> NDArray[np.float32]:
        try:
            rows = self.encoder.transform(columns)
        except ValueError as error:
            raise DataError(str(error)) from error
        size = max(1, min(MAX_BATCH_SIZE, REQUEST_BYTES // (4 * rows.shape[1])))
        parts = [
            self._client.infer(
                self.model, rows[start : start + size], version=self.version, protocol=self._protocol
            )
            for start in range(0, len(rows), size)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self._n_outputs), np.float32)

    @property
    def _n_outputs(self) -> int:
        return len(self.encoder.target.labels or ("value",))

    def _served(self) -> tuple[int, Encoder]:
        versions = self._client.versions(self.model)
        if not versions:
            raise NotFoundError(f"Triton does not serve {self.model}: deploy it first")
        encoder = self._repository.read(self.model, versions[-1], "encoder.json")
        return versions[-1], Encoder.from_json(encoder)
