"""Gradient-boosted oblivious trees of CatBoost, by the names of its scikit-learn interface.

All nodes of one level of an oblivious tree make the same test. CatBoost takes codes of categories as numbers:
its own statistics of categories are not trees, so no checkpoint could hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmls_core.models.engines import portfolios
from dmls_core.models.engines.base import Argument, Array, Binned, Growing, shares, spread_columns
from dmls_core.models.engines.booster import CLASS_WEIGHT, Booster, Fit, boosted_models, share
from dmls_core.models.engines.ensemble import FittedBooster
from dmls_core.models.engines.oblivious_trees import ABSENT, as_treelite
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Scalar

if TYPE_CHECKING:
    import catboost
    import numpy as np
    import treelite
    from numpy.typing import NDArray

    from dmls_core.models.engines.base import FloatArray

_HYPERPARAMETERS = (
    HyperparameterDefinition("depth", "int", 6, "Depth of every tree.", low=1, high=16),
    HyperparameterDefinition("l2_leaf_reg", "float", 3.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "random_strength", "float", 1.0, "Noise in the scores of splits.", low=0.0, high=1e9
    ),
    share("subsample", "Share of the rows in each sample.", 0.8),
    share("colsample_bylevel", "Share of the columns that each level chooses from."),
    HyperparameterDefinition(
        "max_bin", "int", 254, "Bins that each column is sorted into.", low=2, high=65_535
    ),
)

_MODELS = boosted_models(
    "catboost",
    "CatBoost's boosted oblivious trees",
    _HYPERPARAMETERS,
    CLASS_WEIGHT,
    rounds=1_000,
    rate=0.03,
    search={
        "depth": {"min": 4, "max": 8},
        "l2_leaf_reg": {"min": 1.0, "max": 10.0, "log": True},
        "random_strength": {"min": 0.0, "max": 2.0},
        "subsample": {"min": 0.5, "max": 1.0},
        "colsample_bylevel": {"min": 0.5, "max": 1.0},
    },
    portfolio=portfolios.CATBOOST,
)

_MOST_HISTOGRAMS = 256
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

        margin: FloatArray = np.asarray(
            self.booster.predict(
                _lockable(features), prediction_type="RawFormulaVal", thread_count=self._threads
            )
        )
        if self._n_classes > 2:
            margin = spread_columns(margin, self.booster.classes_, self._n_classes, ABSENT)
        return margin if margins else self.from_margins(margin)

    def importances(self) -> FloatArray:
        """Return how much each feature changes the predictions, as shares."""
        import numpy as np

        changes = self.booster.get_feature_importance(type="PredictionValuesChange")
        return shares(np.asarray(changes, np.float64))

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        said = self.booster.get_all_params()
        library = {name: value for name, value in said.items() if isinstance(value, bool | int | float | str)}
        return CatBoostEngine.recorded(self._settings, library)

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


class CatBoostEngine(Booster):
    """Fit oblivious trees with CatBoost."""

    name = "catboost"
    device = "cpu"
    models = _MODELS
    packages = ("catboost", "treelite")
    libraries = ("catboost", "numpy", "treelite")
    arguments = {  # noqa: RUF012
        "n_estimators": Argument(name="iterations"),
        "colsample_bylevel": Argument(name="rsm"),
        "max_bin": Argument(name="border_count"),
    }
    # Its ``native_categories`` are the codes of LightGBM and XGBoost, with whose models its own are averaged.
    target_scale = (1e-30, 1e30)  # on 300 rows the r2 was the same from 1e-30 to 1e35

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:  # noqa: ARG003
        """Estimate the rows, their bins, the gradients of about three classes, and the leaves' histograms."""
        leaf = 16 * columns * int(params.get("max_bin", 254))
        leaves = min(1 << int(params.get("depth", 6)), _MOST_HISTOGRAMS)
        return 8 * rows * columns + 200 * rows + leaf * leaves

    @classmethod
    def error_class(cls) -> type[Exception]:
        """Return CatBoost's exception."""
        import catboost

        error: type[Exception] = catboost.CatBoostError
        return error

    def train(
        self, fit: Fit, features: Array, target: NDArray[Any], weights: FloatArray | None
    ) -> catboost.CatBoost:
        """Return a fitted model; see ``Booster.train``."""
        import catboost

        return _unfitted(fit, fit.settings).fit(catboost.Pool(_lockable(features), target, weight=weights))

    def bin_rows(
        self, fit: Fit, features: Array, target: NDArray[Any], weights: FloatArray | None, scored: Array
    ) -> Binned:
        """Bin rows for many models; see ``Booster.bin_rows``."""
        import catboost

        data = catboost.Pool(_lockable(features), target, weight=weights)
        data.quantize(border_count=fit.settings["max_bin"])
        return BinnedCatBoost(fit, data, scored)

    def wrap(self, fit: Fit, booster: catboost.CatBoost, features: Array) -> FittedCatBoost:  # noqa: ARG002
        """Return a model as a ``Fitted``; see ``Booster.wrap``."""
        return FittedCatBoost(fit.model, fit.settings, booster, fit.n_classes, fit.threads)


def _lockable(features: Array) -> Array:
    """Return a view for CatBoost to lock: it makes a matrix that it reads without a copy read-only for good.

    Of C-contiguous matrices, these are the ones of a single column or row.
    """
    return features.view()


def _unfitted(fit: Fit, settings: Mapping[str, Scalar]) -> catboost.CatBoost:
    """Return a model without trees for a fit with other ``settings``."""
    import catboost

    options = CatBoostEngine.library_arguments(settings)
    options.pop("class_weight", None)  # the weights of the rows contain it
    loss = "RMSE" if not fit.n_classes else "Logloss" if fit.n_classes == 2 else "MultiClass"
    options |= {"loss_function": loss, "random_seed": fit.seed, "thread_count": fit.threads}
    # By default, models of several classes sample rows by a method without `subsample`.
    options |= {"bootstrap_type": "MVS", "boosting_type": "Plain", "grow_policy": "SymmetricTree"}
    return catboost.CatBoost(options | {"allow_writing_files": False, "logging_level": "Silent"})


@dataclass(frozen=True, slots=True)
class BinnedCatBoost(Binned):
    """Rows in CatBoost's bins; see ``Binned``."""

    fit: Fit
    data: catboost.Pool
    scored: NDArray[np.float32]

    def start(self, params: Mapping[str, Scalar]) -> GrowingCatBoost:
        """Return a model without trees; see ``Binned.start``."""
        return GrowingCatBoost(self, CatBoostEngine.effective(self.fit.model, params))


class GrowingCatBoost(Growing):
    """A model that grows; see ``Growing``. One that is continued is the same as one fitted at once."""

    def __init__(self, binned: BinnedCatBoost, settings: Mapping[str, Scalar]) -> None:
        self._binned = binned
        self._settings = settings
        self._booster: catboost.CatBoost | None = None

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        fit, grown = self._binned.fit, self._booster.tree_count_ if self._booster else 0
        if rounds > grown:
            more = _unfitted(fit, {**self._settings, "n_estimators": rounds - grown})
            with CatBoostEngine.refusing(fit.model):
                self._booster = more.fit(self._binned.data, init_model=self._booster)
        fitted = FittedCatBoost(fit.model, self._settings, self._booster, fit.n_classes, fit.threads)
        return fitted.predict(self._binned.scored)
