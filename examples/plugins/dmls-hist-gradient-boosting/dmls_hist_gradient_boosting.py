"""An engine for scikit-learn's histogram-based gradient boosting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_core.models.engines import Engine, Fitted
from dmls_core.models.engines.base import by_name, refusal, spread_columns
from dmls_core.spec import HyperparameterDefinition, ModelDefinition, Scalar

HYPERPARAMETERS = by_name(
    HyperparameterDefinition("n_estimators", "int", 100, "Boosting rounds.", low=1, high=10_000),
    HyperparameterDefinition(
        "learning_rate", "float", 0.1, "Weight of each tree.", low=0.0, high=1.0, low_open=True
    ),
    HyperparameterDefinition("max_leaf_nodes", "int", 31, "Most leaves of a tree.", low=2, high=10_000),
    HyperparameterDefinition(
        "max_depth",
        "int",
        "none",
        'Deepest level of a tree; "none" sets no limit.',
        low=1,
        high=1_000,
        choices=("none",),
    ),
    HyperparameterDefinition(
        "min_samples_leaf", "int", 20, "Rows that each leaf needs.", low=1, high=10_000_000
    ),
    HyperparameterDefinition("l2_regularization", "float", 0.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_features",
        "float",
        1.0,
        "Share of the columns considered at each split.",
        low=0.0,
        high=1.0,
        low_open=True,
    ),
    HyperparameterDefinition("max_bins", "int", 255, "Bins of each column.", low=2, high=255),
)

SEARCH = {
    "n_estimators": {"min": 50, "max": 500},
    "learning_rate": {"min": 0.01, "max": 0.3, "log": True},
    "max_leaf_nodes": {"min": 8, "max": 128, "log": True},
    "min_samples_leaf": {"min": 5, "max": 100, "log": True},
}

NOT_RECORDED = frozenset({"verbose", "warm_start", "random_state"})


def _model(name: str, task: Any, description: str) -> ModelDefinition:
    return ModelDefinition(
        name=name,
        task=task,
        family="hist-gradient-boosting",
        description=description,
        hyperparameters=HYPERPARAMETERS,
        missing_values=True,
        search=SEARCH,
    )


class FittedHistGradientBoosting(Fitted):
    """A fitted estimator of scikit-learn."""

    def __init__(self, settings: Mapping[str, Scalar], estimator: Any, columns: int, n_classes: int) -> None:
        self._settings = settings
        self._estimator = estimator
        self._columns = columns
        self._n_classes = n_classes

    def predict(self, features: Any) -> Any:
        """Return probabilities (n_rows, n_classes), or values (n_rows,)."""
        if not self._n_classes:
            return self._estimator.predict(features)
        found = self._estimator.predict_proba(features)
        return spread_columns(found, self._estimator.classes_, self._n_classes)

    def importances(self) -> Any:
        """Return zeros: scikit-learn does not measure them for these models."""
        import numpy as np

        return np.zeros(self._columns)

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        own = {k: v for k, v in self._estimator.get_params().items() if k not in NOT_RECORDED}
        return HistGradientBoostingEngine.recorded(self._settings, own)

    def to_treelite(self) -> Any:
        """Return the trees as a Treelite model."""
        import treelite.sklearn

        return treelite.sklearn.import_model(self._estimator)


class HistGradientBoostingEngine(Engine):
    """Fit scikit-learn's HistGradientBoostingClassifier and HistGradientBoostingRegressor."""

    name = "hist-gradient-boosting"
    device = "cpu"
    models = (
        _model("hist-gradient-boosting-classifier", "classification", "Boosted trees for classes."),
        _model("hist-gradient-boosting-regressor", "regression", "Boosted trees for numbers."),
    )
    packages = ("sklearn", "treelite")
    libraries = ("scikit-learn", "numpy", "treelite")

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Any,
        target: Any,
        *,
        n_classes: int,
        seed: int,
        threads: int,
    ) -> FittedHistGradientBoosting:
        """Fit one model; see ``Engine.fit``."""
        from sklearn import ensemble
        from threadpoolctl import threadpool_limits

        settings = self.effective(model, params)
        arguments = self.library_arguments(settings)
        # Every row takes part in the fit: the search decides when to stop.
        fixed = {"early_stopping": False, "random_state": seed, "max_iter": arguments.pop("n_estimators")}
        kind = "HistGradientBoostingClassifier" if n_classes else "HistGradientBoostingRegressor"
        estimator = getattr(ensemble, kind)(**arguments, **fixed)
        try:
            with threadpool_limits(threads, "openmp"):
                estimator.fit(features, target)
        except ValueError as error:
            raise refusal(model, error) from error
        return FittedHistGradientBoosting(settings, estimator, features.shape[1], n_classes)
