"""The protocol that every engine keeps, and what engines share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.definitions import ModelDefinition, Scalar

if TYPE_CHECKING:
    import treelite

Array = Any
"""An array on the engine's device: NumPy's on ``cpu``, CuPy's on ``gpu``."""

Forest = Any
"""A forest of scikit-learn or cuML; neither library is typed."""

FloatArray = NDArray[np.floating[Any]]

Parameters = Mapping[str, Scalar | None]
"""Hyperparameters by the library's own names."""


class Fitted(Protocol):
    """A fitted model."""

    def predict(self, features: Array) -> FloatArray:
        """Predict ``features`` of shape (n_rows, n_features), float32, on the engine's device.

        Returns:
            A NumPy array: probabilities of shape (n_rows, n_classes), or values of shape (n_rows,).
        """
        ...

    def importances(self) -> FloatArray:
        """Return one share per feature, shape (n_features,), summing to 1 (or all 0)."""
        ...

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every parameter in effect: the spec's by the spec's names, others by the library's."""
        ...

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        ...


class Engine(Protocol):
    """Fits the models of one family on one device."""

    name: str
    """``cpu`` or ``gpu``."""

    libraries: tuple[str, ...]
    """Distributions whose versions belong to the result."""

    def place(self, array: NDArray[Any]) -> Array:
        """Copy an array to the engine's device; index arrays for rows go the same way."""
        ...

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,
    ) -> Fitted:
        """Fit one model.

        Args:
            model: what to fit; of this engine's family.
            params: hyperparameters by the spec's names; the catalogue's defaults fill the gaps.
            features: (n_rows, n_features) float32 on the engine's device.
            target: (n_rows,) on the device: class codes from 0 as int32, or values as float64.
            n_classes: number of classes, 0 for a regression. Not every class need be in ``target``.
            seed: the same seed gives the same model.
            threads: CPU threads to use at most.

        Raises:
            DataError: the library refuses these hyperparameters on this data.
        """
        ...


class FetchingEngine(Engine, Protocol):
    """An engine whose arrays may lie elsewhere than in the CPU's memory."""

    def fetch(self, array: Array) -> NDArray[Any]:
        """Copy an array of the engine's device into a NumPy array."""
        ...


class Reader(Protocol):
    """Reads columns of data files on a device; each answer is a ``pyarrow.Table`` or None."""

    def csv(
        self,
        path: Path,
        kinds: Mapping[int, Literal["float32", "float64", "str"]],
        *,
        header_lines: int,
        columns: int,
    ) -> Any:  # noqa: ANN401 - pyarrow is not typed
        """Read columns, given by their positions, from a CSV file of ``columns`` columns."""
        ...

    def parquet(self, path: Path, kinds: Mapping[str, Literal["float32", "float64", "str"]]) -> Any:  # noqa: ANN401
        """Read columns of a Parquet file."""
        ...


class Growing(Protocol):
    """A boosted model that grows round by round."""

    def grow(self, rounds: int) -> FloatArray:
        """Grow to ``rounds`` rounds in all, no fewer than before.

        Returns:
            What a model fitted with so many rounds predicts for the rows to score on; see ``Fitted.predict``.

        Raises:
            DataError: the library refuses the hyperparameters on this data.
        """
        ...


class Binned(Protocol):
    """Rows to fit on and rows to score on, sorted into bins once for any number of models."""

    def start(self, params: Mapping[str, Scalar]) -> Growing:
        """Return a model without trees yet.

        Args:
            params: hyperparameters as ``Engine.fit`` takes them; they agree with those that the rows were
                binned for in what ``BoostingEngine.binning`` returns.

        Raises:
            DataError: the library refuses these hyperparameters.
        """
        ...


class BoostingEngine(Engine, Protocol):
    """An engine whose models grow round by round."""

    def binning(self, model: ModelDefinition, params: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return that part of the hyperparameters which decides how rows are binned and weighted."""
        ...

    def bin(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        scored: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,
    ) -> Binned:
        """Bin the rows that models are fitted on, and take in those that they are scored on.

        Args:
            model: what will be fitted; of this engine's family.
            params: hyperparameters, of which ``binning`` matters.
            features: (n_rows, n_features), as ``fit`` takes them.
            target: (n_rows,), likewise.
            scored: (n_scored, n_features): the rows to score on.
            n_classes: number of classes, 0 for a regression.
            seed: the same seed gives the same models, and the same as those of ``fit``.
            threads: CPU threads to use at most.

        Raises:
            DataError: the library refuses these hyperparameters on this data.
        """
        ...


PARALLEL_CELLS = 20_000
"""Below this many cells of the matrix, threads wait for each other longer than they work."""


def useful_threads(features: Array, threads: int) -> int:
    """Return how many of the threads a fit on ``features`` gains from."""
    return threads if features.size >= PARALLEL_CELLS else 1


def refusal(model: ModelDefinition, error: Exception) -> Exception:
    """Return the error to raise where a library refused to fit: out of memory, or the user's doing."""
    if "bad_alloc" in str(error) or "out of memory" in str(error).lower():
        return MemoryError(str(error))
    message = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return DataError(ValidationIssue(f"{model.name} cannot be fitted: {message}"))


def spread_columns(probabilities: FloatArray, codes: NDArray[Any], n_classes: int) -> FloatArray:
    """Give columns of zeros to the classes that a fold's training rows lacked.

    Args:
        probabilities: (n_rows, len(codes)).
        codes: the class code of each column.
        n_classes: columns wanted.
    """
    if probabilities.shape[1] == n_classes:
        return probabilities
    full = np.zeros((len(probabilities), n_classes), dtype=probabilities.dtype)
    full[:, codes] = probabilities
    return full


def two_columns(positive: FloatArray) -> FloatArray:
    """Turn the probability of class 1, shape (n_rows,), into those of classes 0 and 1."""
    return np.stack([1 - positive, positive], axis=1)


def shares(gains: FloatArray) -> FloatArray:
    """Scale importances so that they sum to 1; all zeros stay zeros."""
    beyond = ~np.isfinite(gains)
    if beyond.any():
        # More than the library's numbers hold, as with a target around 1e30: how much more is not known.
        gains = beyond.astype(float)
    total = gains.sum()
    return gains / total if total > 0 else np.zeros_like(gains)
