"""cuML's random forests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cuml.ensemble import RandomForestClassifier, RandomForestRegressor
from numpy.typing import NDArray

from dmls_core.models.engines.base import Array, FloatArray, Forest, refusal, shares, spread_columns
from dmls_core.models.engines.gpu.memory import to_device, to_host
from dmls_core.models.engines.parameters import effective, engine_arguments, recorded
from dmls_core.spec.definitions import ModelDefinition, Scalar

if TYPE_CHECKING:
    import treelite

BINS = 128
"""Bins that cuML sorts each column into: its own default, said here so that no release changes it."""

HOUSEKEEPING = frozenset({"verbose", "output_type", "handle", "n_streams", "max_batch_size"})
"""Parameters of cuML that do not change the model."""


class FittedCumlForest:
    """A fitted forest of cuML."""

    def __init__(
        self, model: ModelDefinition, params: dict[str, Scalar], forest: Forest, n_classes: int
    ) -> None:
        self._model = model
        self._params = params
        self._forest = forest
        self._n_classes = n_classes

    def predict(self, features: Array) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        if not self._n_classes:
            return to_host(self._forest.predict(features)).reshape(len(features))
        probabilities = to_host(self._forest.predict_proba(features))
        return spread_columns(probabilities, to_host(self._forest.classes_).astype(int), self._n_classes)

    def importances(self) -> FloatArray:
        """Return the decrease of impurity per feature as shares."""
        return shares(to_host(self._forest.feature_importances_).astype(float))

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        own = {k: v for k, v in self._forest.get_params().items() if k not in HOUSEKEEPING}
        return recorded(self._model, "gpu", self._params, own)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        model: treelite.Model = self._forest.as_treelite()
        return model


class CumlForestEngine:
    """Fits forests with cuML."""

    name = "gpu"
    libraries = ("cuml", "cupy", "numpy", "treelite")

    def place(self, array: NDArray[Any]) -> Array:
        """Copy an array to the GPU."""
        return to_device(array)

    def fetch(self, array: Array) -> NDArray[Any]:
        """Copy an array of the GPU into a NumPy array."""
        return to_host(array)

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,  # noqa: ARG002 - of the protocol; the GPU does the work
    ) -> FittedCumlForest:
        """Fit one forest; see ``Engine.fit``."""
        settings = effective(model, self.name, params)
        kind = RandomForestClassifier if n_classes else RandomForestRegressor
        forest = kind(
            **engine_arguments(model, settings, self.name),
            n_bins=min(BINS, len(features)),
            # With more streams than one, their timing decides which tree draws which random numbers.
            n_streams=1,
            random_state=seed,
            output_type="cupy",
        )
        try:
            forest.fit(features, target.astype(np.int32 if n_classes else np.float32))
        except (ValueError, RuntimeError) as error:
            # Neither library has an error class of its own for a lack of memory below RuntimeError.
            raise refusal(model, error) from error
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error
        return FittedCumlForest(model, settings, forest, n_classes)
