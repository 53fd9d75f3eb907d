"""Gradient-boosted oblivious trees of CatBoost, by the names of its scikit-learn interface.

All nodes of one level of an oblivious tree make the same test. CatBoost takes codes of categories as numbers:
its own statistics of categories are not trees, so no checkpoint could hold them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmls_core.models.engines import portfolios
from dmls_core.models.engines.base import (
    Argument,
    Array,
    Binned,
    BoostingEngine,
    Growing,
    by_name,
    refusal,
    shares,
    spread_columns,
    useful_threads,
)
from dmls_core.models.engines.ensemble import FittedBooster
from dmls_core.models.engines.learning_rate import AUTO, learning_rate
from dmls_core.models.engines.lightgbm import row_weights
from dmls_core.models.engines.oblivious_trees import ABSENT, as_treelite
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Scalar, Task

if TYPE_CHECKING:
    import catboost
    import numpy as np
    import treelite
    from numpy.typing import NDArray

    from dmls_core.models.engines.base import FloatArray

_SHARED = (
    HyperparameterDefinition("n_estimators", "int", 1_000, "Boosting rounds.", low=1, high=100_000),
    learning_rate(0.03),
    HyperparameterDefinition("depth", "int", 6, "Depth of every tree.", low=1, high=16),
    HyperparameterDefinition("l2_leaf_reg", "float", 3.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "random_strength", "float", 1.0, "Noise in the scores of splits.", low=0.0, high=1e9
    ),
    HyperparameterDefinition(
        "subsample", "float", 0.8, "Share of the rows in each sample.", low=0.0, high=1.0, low_open=True
    ),
    HyperparameterDefinition(
        "colsample_bylevel",
        "float",
        1.0,
        "Share of the columns that each level chooses from.",
        low=0.0,
        high=1.0,
        low_open=True,
    ),
    HyperparameterDefinition(
        "max_bin", "int", 254, "Bins that each column is sorted into.", low=2, high=65_535
    ),
)

_CLASSIFIER = (
    HyperparameterDefinition(
        "class_weight", "choice", "none", "Weights of the classes.", choices=("none", "balanced")
    ),
)


def _boosted(task: Task, description: str) -> ModelDefinition:
    own = (*_SHARED, *_CLASSIFIER) if task == "classification" else _SHARED
    return ModelDefinition(
        name="catboost-classifier" if task == "classification" else "catboost-regressor",
        task=task,
        family="catboost",
        description=description,
        hyperparameters=by_name(*own),
        missing_values=True,
        search={
            "n_estimators": {"min": 50, "max": 500},
            "learning_rate": {"value": AUTO},
            "depth": {"min": 4, "max": 8},
            "l2_leaf_reg": {"min": 1.0, "max": 10.0, "log": True},
            "random_strength": {"min": 0.0, "max": 2.0},
            "subsample": {"min": 0.5, "max": 1.0},
            "colsample_bylevel": {"min": 0.5, "max": 1.0},
        },
        portfolio=portfolios.CATBOOST,
    )


MODELS = (
    _boosted("classification", "CatBoost's boosted oblivious trees for classes."),
    _boosted("regression", "CatBoost's boosted oblivious trees for numbers."),
)

_PLACE = re.compile(r"^\S+\.cpp:\d+: ")
"""The place in CatBoost's source code at the beginning of its messages."""

MOST_HISTOGRAMS = 256
"""Leaves whose histograms CatBoost keeps: 20,000 x 1,000 cells took 1.1 GB at depth 8, 0.1 GB at depth 10."""


class FittedCatBoost(FittedBooster):
    """A fitted model of CatBoost."""

    def __init__(
        self,
        model: ModelDefinition,
        settings: Mapping[str, Scalar],
        booster: catboost.CatBoost,
        n_classes: int,
        threads: int,
    ) -> None:
        self.model = model
        self.booster = booster
        self._settings = settings
        self._n_classes = n_classes
        self._threads = threads

    def answers(self, features: NDArray[np.float32], *, margins: bool) -> FloatArray:
        """Predict; see ``FittedBooster.answers``."""
        import numpy as np

        found: FloatArray = np.asarray(
            self.booster.predict(features, prediction_type="RawFormulaVal", thread_count=self._threads)
        )
        if self._n_classes > 2:
            found = spread_columns(found, self.booster.classes_, self._n_classes, ABSENT)
        return found if margins else self.from_margins(found)

    def importances(self) -> FloatArray:
        """Return how much each feature changes the predictions, as shares."""
        import numpy as np

        found = self.booster.get_feature_importance(type="PredictionValuesChange")
        return shares(np.asarray(found, np.float64))

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        said = self.booster.get_all_params()
        own = {name: value for name, value in said.items() if isinstance(value, bool | int | float | str)}
        return CatBoostEngine.recorded(self._settings, own)

    def can_stop_earlier(self) -> bool:
        """Return true: a round does not change those before."""
        return True

    def first_rounds(self, rounds: int) -> FittedCatBoost:
        """Return the model after its first rounds; see ``Fitted.first_rounds``."""
        shorter = self.booster.copy()
        shorter.shrink(rounds)
        settings = {**self._settings, "n_estimators": rounds}
        return FittedCatBoost(self.model, settings, shorter, self._n_classes, self._threads)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model in double precision."""
        return as_treelite(self.booster, self._n_classes)


class CatBoostEngine(BoostingEngine):
    """Fit oblivious trees with CatBoost."""

    name = "catboost"
    device = "cpu"
    models = MODELS
    packages = ("catboost", "treelite")
    libraries = ("catboost", "numpy", "treelite")
    arguments = {  # noqa: RUF012
        "n_estimators": Argument(name="iterations"),
        "colsample_bylevel": Argument(name="rsm"),
        "max_bin": Argument(name="border_count"),
    }
    native_categories = True  # the codes of LightGBM and XGBoost, with whose models its own are averaged
    sample_weights = True
    target_scale = (1e-30, 1e30)  # on 300 rows the r2 was the same from 1e-30 to 1e35

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:  # noqa: ARG003
        """Estimate the rows, their bins, the gradients of about three classes, and the leaves' histograms."""
        leaf = 16 * columns * int(params.get("max_bin", 254))
        leaves = min(1 << int(params.get("depth", 6)), MOST_HISTOGRAMS)
        return 8 * rows * columns + 200 * rows + leaf * leaves

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: NDArray[Any],
        *,
        n_classes: int,
        seed: int,
        threads: int,
        weights: NDArray[np.float64] | None = None,
    ) -> FittedCatBoost:
        """Fit one model; see ``Engine.fit``."""
        threads = useful_threads(features, threads)
        settings = self.effective(model, params)
        booster = _booster(settings, n_classes, seed, threads)
        data = _rows(features, target, weights, balanced=settings.get("class_weight") == "balanced")
        _fit(model, booster, data)
        return FittedCatBoost(model, settings, booster, n_classes, threads)

    def binning(self, model: ModelDefinition, params: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return the number of bins and the weights' kind; see ``BoostingEngine.binning``."""
        settings = self.effective(model, params)
        return settings["max_bin"], settings.get("class_weight", "none")

    def bin(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: NDArray[Any],
        scored: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,
        weights: NDArray[np.float64] | None = None,
    ) -> Binned:
        """Bin rows for many models; see ``BoostingEngine.bin``."""
        bins, weighing = self.binning(model, params)
        data = _rows(features, target, weights, balanced=weighing == "balanced")
        data.quantize(border_count=bins)
        return BinnedCatBoost(model, data, scored, n_classes, seed, useful_threads(features, threads))


def _rows(
    features: NDArray[np.float32],
    target: NDArray[Any],
    weights: NDArray[np.float64] | None,
    *,
    balanced: bool,
) -> catboost.Pool:
    import catboost

    return catboost.Pool(features, target, weight=row_weights(target, weights, balanced=balanced))


def _booster(settings: Mapping[str, Scalar], n_classes: int, seed: int, threads: int) -> catboost.CatBoost:
    import catboost

    options = CatBoostEngine.library_arguments(settings)
    options.pop("class_weight", None)  # the weights of the rows contain it
    loss = "RMSE" if not n_classes else "Logloss" if n_classes == 2 else "MultiClass"
    options |= {"loss_function": loss, "random_seed": seed, "thread_count": threads}
    # By default, models of several classes sample rows by a method without `subsample`.
    options |= {"bootstrap_type": "MVS", "boosting_type": "Plain", "grow_policy": "SymmetricTree"}
    return catboost.CatBoost(options | {"allow_writing_files": False, "logging_level": "Silent"})


def _fit(
    model: ModelDefinition,
    booster: catboost.CatBoost,
    data: catboost.Pool,
    earlier: Any = None,  # noqa: ANN401
) -> None:
    import catboost

    try:
        booster.fit(data, init_model=earlier)
    except (ValueError, catboost.CatBoostError) as error:
        raise refusal(model, ValueError(_PLACE.sub("", str(error)))) from error


@dataclass(frozen=True, slots=True)
class BinnedCatBoost(Binned):
    """Rows in CatBoost's bins, and what all models of them share; see ``Binned``."""

    model: ModelDefinition
    data: catboost.Pool
    scored: NDArray[np.float32]
    n_classes: int
    seed: int
    threads: int

    def start(self, params: Mapping[str, Scalar]) -> GrowingCatBoost:
        """Return a model without trees; see ``Binned.start``."""
        return GrowingCatBoost(self, CatBoostEngine.effective(self.model, params))


class GrowingCatBoost(Growing):
    """A model that grows; see ``Growing``. One that is continued is the same as one fitted at once."""

    def __init__(self, binned: BinnedCatBoost, settings: Mapping[str, Scalar]) -> None:
        self._binned = binned
        self._settings = settings
        self._booster: catboost.CatBoost | None = None

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        own, grown = self._binned, self._booster.tree_count_ if self._booster else 0
        if rounds > grown:
            more = {**self._settings, "n_estimators": rounds - grown}
            booster = _booster(more, own.n_classes, own.seed, own.threads)
            _fit(own.model, booster, own.data, self._booster)
            self._booster = booster
        fitted = FittedCatBoost(own.model, self._settings, self._booster, own.n_classes, own.threads)
        return fitted.predict(own.scored)
