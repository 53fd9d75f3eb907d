"""scikit-learn's random forests and extra trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from dmls_core.models.engines.base import FloatArray, Forest, refusal, spread_columns, useful_threads
from dmls_core.models.engines.parameters import effective, engine_arguments, recorded
from dmls_core.spec.definitions import ModelDefinition, Scalar

if TYPE_CHECKING:
    import treelite

ESTIMATORS = {
    ("random-forest", "classification"): RandomForestClassifier,
    ("random-forest", "regression"): RandomForestRegressor,
    ("extra-trees", "classification"): ExtraTreesClassifier,
    ("extra-trees", "regression"): ExtraTreesRegressor,
}

HOUSEKEEPING = frozenset({"n_jobs", "verbose", "warm_start"})
"""Parameters of scikit-learn that do not change the model."""


def unfitted(model: ModelDefinition, settings: Mapping[str, Scalar], *, seed: int, threads: int) -> Forest:
    """Return a forest of scikit-learn before its fit.

    Args:
        model: what it is.
        settings: as ``effective`` returned them.
        seed: the same seed grows the same trees.
        threads: CPU threads to use.
    """
    return ESTIMATORS[model.family, model.task](
        **engine_arguments(model, settings, "cpu"), random_state=seed, n_jobs=threads
    )


class FittedForest:
    """A fitted forest of scikit-learn."""

    def __init__(
        self, model: ModelDefinition, params: dict[str, Scalar], forest: Forest, n_classes: int
    ) -> None:
        self._model = model
        self._params = params
        self._forest = forest
        self._n_classes = n_classes

    def predict(self, features: NDArray[np.float32]) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        if not self._n_classes:
            values: FloatArray = self._forest.predict(features)
            return values
        return spread_columns(self._forest.predict_proba(features), self._forest.classes_, self._n_classes)

    def importances(self) -> FloatArray:
        """Return the mean decrease of impurity per feature, summing to 1."""
        found: FloatArray = self._forest.feature_importances_
        return found

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        own = {k: v for k, v in self._forest.get_params(deep=False).items() if k not in HOUSEKEEPING}
        return recorded(self._model, "cpu", self._params, own)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        import treelite.sklearn

        return treelite.sklearn.import_model(self._forest)


class ForestEngine:
    """Fits forests with scikit-learn."""

    name = "cpu"
    libraries = ("scikit-learn", "numpy", "treelite")

    def place(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself: it is in the CPU's memory already."""
        return array

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: NDArray[np.float32],
        target: NDArray[Any],
        *,
        n_classes: int,
        seed: int,
        threads: int,
    ) -> FittedForest:
        """Fit one forest; see ``Engine.fit``."""
        settings = effective(model, self.name, params)
        forest = unfitted(model, settings, seed=seed, threads=useful_threads(features, threads))
        try:
            forest.fit(features, target)
        except ValueError as error:
            raise refusal(model, error) from error
        return FittedForest(model, settings, forest, n_classes)
