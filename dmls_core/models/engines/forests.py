"""Random forests and extra trees of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from dmls_core.models.cluster import ShardedMatrix
from dmls_core.models.engines.base import (
    Array,
    Forest,
    GrowingForestEngine,
    by_name,
    refusal,
    spread_columns,
    useful_threads,
)
from dmls_core.models.engines.ensemble import FittedTrees
from dmls_core.models.engines.sharded_forests import TREES, fit_forest
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Requirement, Scalar, Task

if TYPE_CHECKING:
    import numpy as np
    import treelite
    from numpy.typing import NDArray

    from dmls_core.models.engines.base import FloatArray

_SHARED = (
    HyperparameterDefinition("n_estimators", "int", 100, "Number of trees.", low=1, high=10_000),
    HyperparameterDefinition(
        "max_depth",
        "int",
        "none",
        'Deepest level of a tree; "none" grows until the leaves are pure.',
        low=1,
        high=1_000,
        choices=("none",),
    ),
    HyperparameterDefinition(
        "min_samples_split",
        "count",
        2,
        "Rows (or share of the rows) that a node needs to be split.",
        low=2,
        high=10_000_000,
    ),
    HyperparameterDefinition(
        "min_samples_leaf",
        "count",
        1,
        "Rows (or share of the rows) that each leaf needs.",
        low=1,
        high=10_000_000,
        share_high=0.5,
    ),
    HyperparameterDefinition(
        "min_weight_fraction_leaf",
        "float",
        0.0,
        "Share of the total weight that each leaf needs.",
        low=0.0,
        high=0.5,
    ),
    HyperparameterDefinition(
        "max_leaf_nodes",
        "int",
        "none",
        'Most leaves of a tree; "none" sets no limit.',
        low=2,
        high=10_000_000,
        choices=("none",),
    ),
    HyperparameterDefinition(
        "min_impurity_decrease", "float", 0.0, "Least gain of a split.", low=0.0, high=1e9
    ),
    HyperparameterDefinition(
        "max_samples",
        "count",
        "none",
        'Rows (or share of the rows) that each tree is grown on; "none" draws as many as there are.',
        low=1,
        high=1_000_000_000,
        choices=("none",),
    ),
    HyperparameterDefinition(
        "ccp_alpha", "float", 0.0, "Strength of minimal cost-complexity pruning.", low=0.0, high=1e9
    ),
)

_MAX_SAMPLES_NEEDS_BOOTSTRAP = Requirement("max_samples", needs="bootstrap", value=True)


def _max_features(default: str | float) -> HyperparameterDefinition:
    return HyperparameterDefinition(
        "max_features",
        "count",
        default,
        "Columns (or share of them) considered at each split.",
        low=1,
        high=1_000_000,
        choices=("sqrt", "log2", "none"),
    )


def _bootstrap(default: bool) -> HyperparameterDefinition:
    return HyperparameterDefinition(
        "bootstrap", "bool", default, "Whether each tree is grown on rows drawn with replacement."
    )


_CLASSIFIER = (
    HyperparameterDefinition(
        "criterion",
        "choice",
        "gini",
        "Measure of a split's quality; log_loss is another name for entropy.",
        choices=("gini", "entropy", "log_loss"),
    ),
    HyperparameterDefinition(
        "class_weight",
        "choice",
        "none",
        "Weights of the classes.",
        choices=("none", "balanced", "balanced_subsample"),
    ),
    _max_features("sqrt"),
)

_REGRESSOR = (
    HyperparameterDefinition(
        "criterion",
        "choice",
        "squared_error",
        "Measure of a split's quality.",
        choices=("squared_error", "absolute_error", "poisson"),
    ),
    _max_features(1.0),
)


def _forest(family: Literal["random-forest", "extra-trees"], task: Task, description: str) -> ModelDefinition:
    classifier = task == "classification"
    extra = family == "extra-trees"
    definitions = (*(_CLASSIFIER if classifier else _REGRESSOR), _bootstrap(default=not extra))
    return ModelDefinition(
        name=f"{family}-{'classifier' if classifier else 'regressor'}",
        task=task,
        family=family,
        description=description,
        hyperparameters=by_name(*_SHARED, *definitions),
        missing_values=False,
        search={
            "n_estimators": {"min": 50, "max": 500},
            "max_depth": {"min": 4, "max": 24},
            "max_features": {"values": ["sqrt", 0.5, 1.0]},
            "min_samples_leaf": {"min": 1, "max": 10},
            **({"criterion": {"values": ["gini", "entropy"]}} if classifier else {}),
        },
        requirements=(_MAX_SAMPLES_NEEDS_BOOTSTRAP,),
    )


RANDOM_FORESTS = (
    _forest("random-forest", "classification", "Trees on random samples of the rows that vote for a class."),
    _forest("random-forest", "regression", "The mean of trees on random samples of the rows."),
)
_EXTRA_TREES = (
    _forest("extra-trees", "classification", "Trees with random thresholds that vote for a class."),
    _forest("extra-trees", "regression", "The mean of trees with random thresholds."),
)

ESTIMATORS = {
    ("random-forest", "classification"): "RandomForestClassifier",
    ("random-forest", "regression"): "RandomForestRegressor",
    ("extra-trees", "classification"): "ExtraTreesClassifier",
    ("extra-trees", "regression"): "ExtraTreesRegressor",
}
"""(family, task) -> class in ``sklearn.ensemble``."""

_NOT_RECORDED = frozenset({"n_jobs", "verbose", "warm_start"})
"""Parameters of scikit-learn that do not change the model."""


class FittedForest(FittedTrees):
    """A fitted forest of scikit-learn; ``settings`` are all its hyperparameters, by the spec's names."""

    def __init__(self, settings: Mapping[str, Scalar], forest: Forest, n_classes: int) -> None:
        self.settings = settings
        self.forest = forest
        self._n_classes = n_classes

    def predict(self, features: NDArray[np.float32]) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        if not self._n_classes:
            values: FloatArray = self.forest.predict(features)
            return values
        return spread_columns(self.forest.predict_proba(features), self.forest.classes_, self._n_classes)

    def importances(self) -> FloatArray:
        """Return the mean decrease of impurity per feature, summing to 1."""
        importances: FloatArray = self.forest.feature_importances_
        return importances

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        library = {k: v for k, v in self.forest.get_params(deep=False).items() if k not in _NOT_RECORDED}
        return SklearnForestEngine.recorded(self.settings, library)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        import treelite.sklearn

        return treelite.sklearn.import_model(self.forest)


class SklearnForestEngine(GrowingForestEngine):
    """Fit forests with scikit-learn."""

    name = "sklearn-forests"
    device = "cpu"
    models = (*RANDOM_FORESTS, *_EXTRA_TREES)
    packages = ("sklearn", "treelite")
    libraries = ("scikit-learn", "numpy", "treelite")
    sample_weights = True
    distributed = True

    def unfitted(
        self, model: ModelDefinition, settings: Mapping[str, Scalar], *, seed: int, threads: int
    ) -> Forest:
        """Return a forest of scikit-learn before its fit; see ``GrowingForestEngine.unfitted``."""
        from sklearn import ensemble

        estimator = getattr(ensemble, ESTIMATORS[model.family, model.task])
        return estimator(**self.library_arguments(settings), random_state=seed, n_jobs=threads)

    def wrap(
        self,
        model: ModelDefinition,  # noqa: ARG002 - scikit-learn's forests know their task
        settings: Mapping[str, Scalar],
        forest: Forest,
        n_classes: int,
    ) -> FittedForest:
        """Return a fitted forest of scikit-learn as a ``Fitted``."""
        return FittedForest(settings, forest, n_classes)

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
        weights: Array | None = None,
    ) -> FittedForest:
        """Fit one forest; see ``Engine.fit``."""
        settings = self.effective(model, params)
        if isinstance(features, ShardedMatrix):
            rows, trees = (features, target, weights), int(settings[TREES])
            grown = fit_forest(rows, model.name, params, trees, n_classes=n_classes, seed=seed)
            return self.wrap(model, settings, grown.set_params(n_jobs=threads), n_classes)
        forest = self.unfitted(model, settings, seed=seed, threads=useful_threads(features, threads))
        try:
            forest.fit(features, target, weights)
        except ValueError as error:
            raise refusal(model, error) from error
        return self.wrap(model, settings, forest, n_classes)
