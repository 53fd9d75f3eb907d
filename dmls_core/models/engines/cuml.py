"""Random forests of cuML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dmls_core.models.engines.base import (
    Argument,
    Array,
    Fitted,
    Forest,
    ForestEngine,
    refusal,
    shares,
    spread_columns,
)
from dmls_core.models.engines.cuda import CudaEngine, to_host
from dmls_core.models.engines.ensemble import FittedTrees
from dmls_core.models.engines.forests import RANDOM_FORESTS
from dmls_core.spec.definitions import ModelDefinition, Scalar

if TYPE_CHECKING:
    import treelite

    from dmls_core.models.engines.base import FloatArray

_BINS = 128
"""Bins per column: cuML's default, fixed here so that no release changes it."""

_STREAMS = 8
"""Trees that grow at once. Their number changes no tree: each draws from the seed and its own number."""

_NOT_RECORDED = frozenset({"verbose", "output_type", "handle", "n_streams", "max_batch_size"})
"""Parameters of cuML that do not change the model."""


_OUT_OF_BAG = "_compute_oob_score"
"""The method by which cuML's forests score themselves. Its last argument says which rows each tree has drawn;
no public method or attribute does."""


def _recording(forest_class: type[Any]) -> type[Any]:
    """Return a class of cuML's forests that keeps its trees' draws as ``drawn``, and computes no score."""

    def keep(self: Any, *arguments: Any) -> None:  # noqa: ANN401 - cuML is not typed
        self.drawn = arguments[-1]

    return type(forest_class.__name__, (forest_class,), {_OUT_OF_BAG: keep})


class FittedCumlForest(FittedTrees):
    """A fitted forest of cuML."""

    def __init__(self, settings: Mapping[str, Scalar], forest: Forest, n_classes: int) -> None:
        self._settings = settings
        self._forest = forest
        self._n_classes = n_classes

    def predict(self, features: Array) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        if not self._n_classes:
            return to_host(self._forest.predict(features)).reshape(len(features))
        probabilities = to_host(self._forest.predict_proba(features))
        return spread_columns(probabilities, to_host(self._forest.classes_).astype(int), self._n_classes)

    def draws(self) -> Array | None:
        """Return which rows each tree has drawn, (n_trees, n_rows); ``None`` if they were not recorded."""
        return getattr(self._forest, "drawn", None)

    def importances(self) -> FloatArray:
        """Return the decrease of impurity per feature as shares."""
        return shares(to_host(self._forest.feature_importances_).astype(float))

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        library = {k: v for k, v in self._forest.get_params().items() if k not in _NOT_RECORDED}
        return CumlForestEngine.recorded(self._settings, library)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        model: treelite.Model = self._forest.as_treelite()
        return model


class CumlForestEngine(CudaEngine, ForestEngine):
    """Fit forests with cuML."""

    name = "cuml-forests"
    models = RANDOM_FORESTS
    packages = ("cuml", "cupy", "treelite")
    libraries = ("cuml", "cupy", "numpy", "treelite")
    arguments = {  # noqa: RUF012
        "criterion": Argument(
            name="split_criterion",
            values={"squared_error": "mse"},
            aliases={"log_loss": "entropy"},
            unsupported_values=frozenset({"absolute_error"}),
        ),
        "max_features": Argument(values={"none": 1.0}),
        "max_leaf_nodes": Argument(name="max_leaves", values={"none": -1}),
        "max_samples": Argument(values={"none": 1.0}, shares_only=True),
        "class_weight": Argument(unsupported_values=frozenset({"balanced_subsample"})),
        "min_weight_fraction_leaf": Argument(unsupported="cuML has no minimum weight of a leaf"),
        "ccp_alpha": Argument(unsupported="cuML does not prune trees"),
    }

    def reports_draws(self) -> bool:
        """Return whether cuML computes out-of-bag scores, as it does since 25.12."""
        from cuml.ensemble import RandomForestClassifier

        return hasattr(RandomForestClassifier, _OUT_OF_BAG)

    def fit_block(self, *arguments: Any, **options: Any) -> tuple[Fitted, Array | None]:  # noqa: ANN401
        """Fit one forest, and return its draws; see ``ForestEngine.fit_block``."""
        fitted = self.fit(*arguments, **options, record=self.reports_draws())
        return fitted, fitted.draws()

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,  # noqa: ARG002 - cuML uses the GPU
        weights: Array | None = None,  # noqa: ARG002 - this engine has no sample_weights
        record: bool = False,
    ) -> FittedCumlForest:
        """Fit one forest; see ``Engine.fit``. With ``record``, keep the draws of a bootstrapped one."""
        import numpy as np
        from cuml.ensemble import RandomForestClassifier, RandomForestRegressor

        settings = self.effective(model, params)
        forest_class = RandomForestClassifier if n_classes else RandomForestRegressor
        record = record and bool(settings["bootstrap"])
        forest = (_recording(forest_class) if record else forest_class)(
            **self.library_arguments(settings),
            oob_score=record,
            n_bins=min(_BINS, len(features)),
            n_streams=_STREAMS,
            random_state=seed,
            output_type="cupy",
        )
        try:
            forest.fit(features, target.astype(np.int32 if n_classes else np.float32))
        except (ValueError, RuntimeError) as error:
            raise refusal(model, error) from error
        return FittedCumlForest(settings, forest, n_classes)
