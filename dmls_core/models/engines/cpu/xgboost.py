"""XGBoost's boosted trees; the CUDA engine is a subclass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from dmls_core.models.engines.base import Array, FloatArray, refusal, shares, two_columns, useful_threads
from dmls_core.models.engines.parameters import effective, engine_arguments, recorded
from dmls_core.spec.definitions import ModelDefinition, Scalar

if TYPE_CHECKING:
    import treelite

HISTOGRAM_BYTES = 64 * 2**20
"""Memory for histograms of nodes. XGBoost keeps up to 65,536 of them (at 54 columns and 256 bins, 14 GB), and
finds those anew that were not kept: at 60,000 x 54 rows and depth 12 that took no longer."""

ALIASES = frozenset({"eta", "gamma", "min_split_loss", "alpha", "lambda", "seed", "nthread", "n_jobs"})
"""XGBoost's second names for what the spec's hyperparameters or the seed set already."""


class FittedXGBoost:
    """A fitted booster of XGBoost."""

    def __init__(
        self,
        model: ModelDefinition,
        engine: XGBoostEngine,
        params: dict[str, Scalar],
        booster: xgboost.Booster,
        columns: int,
    ) -> None:
        self._model = model
        self._engine = engine
        self._params = params
        self._booster = booster
        self._columns = columns

    def predict(self, features: Array) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        found: FloatArray = self._engine.fetch(self._booster.inplace_predict(features))
        return two_columns(found) if self._model.task == "classification" and found.ndim == 1 else found

    def importances(self) -> FloatArray:
        """Return the total gain per feature as shares."""
        gains = np.zeros(self._columns)
        for name, gain in self._booster.get_score(importance_type="total_gain").items():
            gains[int(name[1:])] = gain
        return shares(gains)

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        learner = json.loads(self._booster.save_config())["learner"]
        booster = learner["gradient_booster"]
        own: dict[str, str] = {
            **learner["generic_param"],
            **learner["learner_train_param"],
            **booster["gbtree_train_param"],
            **booster["tree_train_param"],
            "base_score": learner["learner_model_param"]["base_score"],
        }
        return recorded(
            self._model,
            self._engine.name,
            self._params,
            {name: text for name, text in own.items() if name not in ALIASES and text != ""},
        )

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        import treelite

        return treelite.frontend.from_xgboost(self._booster)


class XGBoostEngine:
    """Fits boosted trees with XGBoost's own interface, which needs no wrapper's checks."""

    name = "cpu"
    libraries: tuple[str, ...] = ("xgboost", "numpy", "treelite")
    device = "cpu"

    def place(self, array: NDArray[Any]) -> Array:
        """Return the array itself: it is in the CPU's memory already."""
        return array

    def fetch(self, array: Array) -> NDArray[Any]:
        """Return an array of the engine's device as NumPy's."""
        return np.asarray(array)

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
    ) -> FittedXGBoost:
        """Fit one booster; see ``Engine.fit``."""
        settings = effective(model, self.name, params)
        threads = useful_threads(features, threads)
        options, rounds = self._options(model, settings, features.shape[1], n_classes, seed, threads)
        try:
            matrix = xgboost.QuantileDMatrix(features, target, nthread=threads, max_bin=options["max_bin"])
            booster = xgboost.train(options, matrix, num_boost_round=rounds)
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(model, error) from error
        return FittedXGBoost(model, self, settings, booster, features.shape[1])

    def _options(
        self,
        model: ModelDefinition,
        settings: Mapping[str, Scalar],
        columns: int,
        n_classes: int,
        seed: int,
        threads: int,
    ) -> tuple[dict[str, Any], int]:
        """Return XGBoost's own parameters, and the number of rounds."""
        options: dict[str, Any] = engine_arguments(model, settings, self.name)
        rounds: int = options.pop("n_estimators")
        options |= {"device": self.device, "seed": seed, "nthread": threads, "verbosity": 0}
        if n_classes:
            options["objective"] = "binary:logistic" if n_classes == 2 else "multi:softprob"
            options |= {"num_class": n_classes} if n_classes > 2 else {}
        else:
            options["objective"] = "reg:squarederror"
        each = 16 * options["max_bin"] * columns
        options["max_cached_hist_node"] = max(1, HISTOGRAM_BYTES // each)
        return options, rounds

    def binning(self, model: ModelDefinition, params: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return the number of bins; see ``BoostingEngine.binning``."""
        return (effective(model, self.name, params)["max_bin"],)

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
    ) -> BinnedXGBoost:
        """Bin rows for many boosters; see ``BoostingEngine.bin``."""
        threads, columns = useful_threads(features, threads), features.shape[1]

        def options(params: Mapping[str, Scalar]) -> dict[str, Any]:
            settings = effective(model, self.name, params)
            return self._options(model, settings, columns, n_classes, seed, threads)[0]

        (bins,) = self.binning(model, params)
        try:
            matrix = xgboost.QuantileDMatrix(features, target, nthread=threads, max_bin=bins)
            # In the same bins: a byte per cell, where XGBoost's plain matrix takes eight.
            rows = xgboost.QuantileDMatrix(scored, nthread=threads, max_bin=bins, ref=matrix)
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(model, error) from error
        return BinnedXGBoost(model, matrix, rows, options)


class BinnedXGBoost:
    """Rows in XGBoost's bins; see ``Binned``."""

    def __init__(
        self,
        model: ModelDefinition,
        matrix: xgboost.QuantileDMatrix,
        scored: xgboost.QuantileDMatrix,
        options: Callable[[Mapping[str, Scalar]], dict[str, Any]],
    ) -> None:
        self.model = model
        self.matrix = matrix
        self.scored = scored
        self._options = options

    def start(self, params: Mapping[str, Scalar]) -> GrowingXGBoost:
        """Return a booster without trees; see ``Binned.start``."""
        try:
            # Named here, the matrices keep their predictions: each round adds its own trees' alone.
            booster = xgboost.Booster(self._options(params), cache=[self.matrix, self.scored])
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(self.model, error) from error
        return GrowingXGBoost(self, booster)


class GrowingXGBoost:
    """A booster that grows; see ``Growing``."""

    def __init__(self, binned: BinnedXGBoost, booster: xgboost.Booster) -> None:
        self._binned = binned
        self._booster = booster
        self._rounds = 0

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        try:
            for number in range(self._rounds, rounds):
                self._booster.update(self._binned.matrix, number)
            found: FloatArray = self._booster.predict(self._binned.scored)
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(self._binned.model, error) from error
        self._rounds = rounds
        classes = self._binned.model.task == "classification"
        return two_columns(found) if classes and found.ndim == 1 else found
