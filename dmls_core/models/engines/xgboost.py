"""Gradient-boosted trees of XGBoost, on the CPU and on CUDA, by the names of its scikit-learn interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dmls_core.models.cluster import ShardedMatrix
from dmls_core.models.engines import portfolios
from dmls_core.models.engines.base import (
    Argument,
    Array,
    Binned,
    BoostingEngine,
    Device,
    Growing,
    by_name,
    refusal,
    shares,
    useful_threads,
)
from dmls_core.models.engines.cuda import CudaEngine
from dmls_core.models.engines.ensemble import FittedBooster, boosted_predictions
from dmls_core.models.engines.learning_rate import AUTO, learning_rate
from dmls_core.models.engines.sharded import FitArguments, ShardedBins, fit_sharded
from dmls_core.models.engines.xgboost_matrices import (
    binned,
    feature_types,
    fit_bytes,
    has_new_levels,
    plain,
    total_bins,
)
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Scalar, Task
from dmls_core.stored_matrix import StoredMatrix

if TYPE_CHECKING:
    import treelite
    import xgboost

    from dmls_core.models.engines.base import FloatArray


def _share(name: str, description: str) -> HyperparameterDefinition:
    return HyperparameterDefinition(name, "float", 1.0, description, low=0.0, high=1.0, low_open=True)


_SHARED = (
    HyperparameterDefinition("n_estimators", "int", 100, "Boosting rounds.", low=1, high=100_000),
    learning_rate(0.3),
    HyperparameterDefinition(
        "max_depth",
        "int",
        6,
        'Deepest level of a tree; "none" sets no limit.',
        low=1,
        high=64,
        choices=("none",),
    ),
    HyperparameterDefinition(
        "max_leaves",
        "int",
        "none",
        'Most leaves of a tree; "none" sets no limit.',
        low=2,
        high=1_000_000,
        choices=("none",),
    ),
    HyperparameterDefinition(
        "grow_policy",
        "choice",
        "depthwise",
        "Where a tree grows next: level by level, or where the loss falls most.",
        choices=("depthwise", "lossguide"),
    ),
    HyperparameterDefinition(
        "min_child_weight", "float", 1.0, "Sum of weights that each child needs.", low=0.0, high=1e9
    ),
    HyperparameterDefinition("gamma", "float", 0.0, "Least gain of a split.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_delta_step", "float", 0.0, "Largest step of a leaf; 0 sets no limit.", low=0.0, high=1e9
    ),
    _share("subsample", "Share of the rows that each tree is grown on."),
    _share("colsample_bytree", "Share of the columns that each tree chooses from."),
    _share("colsample_bylevel", "Share of the columns that each level chooses from."),
    _share("colsample_bynode", "Share of the columns that each split chooses from."),
    HyperparameterDefinition("reg_alpha", "float", 0.0, "L1 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition("reg_lambda", "float", 1.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_bin", "int", 256, "Bins that each column is sorted into.", low=2, high=65_536
    ),
)

_CLASSIFIER = (
    HyperparameterDefinition(
        "scale_pos_weight",
        "float",
        1.0,
        "Weight of the second of two classes.",
        low=0.0,
        high=1e9,
        low_open=True,
    ),
)


def _boosted(task: Task, description: str) -> ModelDefinition:
    own = (*_SHARED, *_CLASSIFIER) if task == "classification" else _SHARED
    return ModelDefinition(
        name="xgboost-classifier" if task == "classification" else "xgboost-regressor",
        task=task,
        family="xgboost",
        description=description,
        hyperparameters=by_name(*own),
        missing_values=True,
        search={
            "n_estimators": {"min": 50, "max": 500},
            "learning_rate": {"value": AUTO},
            "max_depth": {"min": 3, "max": 10},
            "min_child_weight": {"min": 0.5, "max": 20.0, "log": True},
            "subsample": {"min": 0.5, "max": 1.0},
            "colsample_bytree": {"min": 0.5, "max": 1.0},
            "reg_lambda": {"min": 0.01, "max": 10.0, "log": True},
        },
        portfolio=portfolios.XGBOOST,
    )


MODELS = (
    _boosted("classification", "XGBoost's boosted trees for classes."),
    _boosted("regression", "XGBoost's boosted trees for numbers."),
)


HISTOGRAM_BYTES = 64 * 2**20
"""Memory for the cached histograms of nodes, of 16 bytes per bin. XGBoost caches up to 65,536 of them (14 GB
at 54 columns and 256 bins), and computes others again; on 60,000 x 54 rows, depth 12 took no longer."""

ALIASES = frozenset({"eta", "gamma", "min_split_loss", "alpha", "lambda", "seed", "nthread", "n_jobs"})
"""XGBoost's second names for parameters that the spec's hyperparameters or the seed already set."""


class FittedXGBoost(FittedBooster):
    """A fitted booster of XGBoost."""

    def __init__(
        self,
        model: ModelDefinition,
        engine: XGBoostEngine,
        settings: Mapping[str, Scalar],
        booster: xgboost.Booster,
        columns: int,
    ) -> None:
        self.booster = booster
        self.model = model
        self._engine = engine
        self._settings = settings
        self._columns = columns

    def answers(self, features: Array, *, margins: bool) -> FloatArray:
        """Predict; see ``FittedBooster.answers``."""
        kind = "margin" if margins else "value"
        return self._engine.fetch(self.booster.inplace_predict(features, predict_type=kind))

    def importances(self) -> FloatArray:
        """Return the total gain per feature as shares."""
        import numpy as np

        gains = np.zeros(self._columns)
        for name, gain in self.booster.get_score(importance_type="total_gain").items():
            gains[int(name[1:])] = gain
        return shares(gains)

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        learner = json.loads(self.booster.save_config())["learner"]
        booster = learner["gradient_booster"]
        own: dict[str, str] = {
            **learner["generic_param"],
            **learner["learner_train_param"],
            **booster["gbtree_train_param"],
            **booster["tree_train_param"],
            "base_score": learner["learner_model_param"]["base_score"],
        }
        return self._engine.recorded(
            self._settings, {name: text for name, text in own.items() if name not in ALIASES and text != ""}
        )

    def can_stop_earlier(self) -> bool:
        """Return true: a round does not change those before."""
        return True

    def first_rounds(self, rounds: int) -> FittedXGBoost:
        """Return the model after its first rounds; see ``Fitted.first_rounds``."""
        settings = {**self._settings, "n_estimators": rounds}
        return FittedXGBoost(self.model, self._engine, settings, self.booster[:rounds], self._columns)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        import treelite

        return treelite.frontend.from_xgboost(self.booster)


class XGBoostEngine(BoostingEngine):
    """Fit boosted trees with XGBoost's native interface, without the checks of its scikit-learn wrapper."""

    name = "xgboost"
    device: ClassVar[Device] = "cpu"
    models = MODELS
    packages: ClassVar[tuple[str, ...]] = ("xgboost", "treelite")
    libraries: ClassVar[tuple[str, ...]] = ("xgboost", "numpy", "treelite")
    arguments: ClassVar[Mapping[str, Argument]] = {
        "max_depth": Argument(values={"none": 0}),
        "max_leaves": Argument(values={"none": 0}),
    }
    native_categories: ClassVar[bool] = True
    sample_weights: ClassVar[bool] = True
    # On 200 rows XGBoost lost half of its r2 at 1e-4, and all of it at 1e-5 and at 1e20: it makes no split
    # that gains less than 1e-6, and sums squares in 32 bits.
    target_scale = (1e-3, 1e17)
    external_memory: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    xgboost_device: ClassVar[str] = "cpu"  # XGBoost's name of the device

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:
        """Estimate sketches, bins and histograms; see ``Engine.fit_bytes``."""
        return fit_bytes(rows, columns, params, HISTOGRAM_BYTES, stored=stored)

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
    ) -> FittedXGBoost:
        """Fit one booster; see ``Engine.fit``."""
        import xgboost

        settings = self.effective(model, params)
        if isinstance(features, ShardedMatrix):
            arguments = FitArguments("xgboost", model.name, dict(params), self.categories, n_classes, seed)
            booster = fit_sharded((features, target, weights), arguments)
            booster.set_param({"nthread": threads})
            return FittedXGBoost(model, self, settings, booster, features.shape[1])
        threads, stored = useful_threads(features, threads), isinstance(features, StoredMatrix)
        bins = total_bins(features, self.categories, settings["max_bin"])
        options, rounds = self._options(settings, bins, n_classes, seed, threads, stored=stored)
        kinds = feature_types(features, self.categories)
        try:
            matrix = binned(features, target, weights, nthread=threads, max_bin=options["max_bin"], **kinds)
            booster = xgboost.train(options, matrix, num_boost_round=rounds)
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(model, error) from error
        return FittedXGBoost(model, self, settings, booster, features.shape[1])

    def _options(
        self,
        settings: Mapping[str, Scalar],
        bins: int,
        n_classes: int,
        seed: int,
        threads: int,
        *,
        stored: bool,
    ) -> tuple[dict[str, Any], int]:
        """Return XGBoost's parameters, and the number of rounds."""
        options: dict[str, Any] = self.library_arguments(settings)
        rounds: int = options.pop("n_estimators")
        options |= {"device": self.xgboost_device, "seed": seed, "nthread": threads, "verbosity": 0}
        if n_classes:
            options["objective"] = "binary:logistic" if n_classes == 2 else "multi:softprob"
            options |= {"num_class": n_classes} if n_classes > 2 else {}
        else:
            options["objective"] = "reg:squarederror"
        options["max_cached_hist_node"] = cached = max(1, HISTOGRAM_BYTES // (16 * bins))
        depth = options["max_depth"]
        wide = not depth or 2 ** (depth - 1) > cached
        if wide and not stored and not options["max_leaves"] and self.xgboost_device == "cpu":
            # Level by level, XGBoost holds the histograms of a whole level, whatever the limit: 2 GB at depth
            # 10 and 1,000 columns. Without a limit of leaves, the other policy grows the same trees. On disk,
            # it would read all rows for each node.
            options["grow_policy"] = "lossguide"
        return options, rounds

    def binning(self, model: ModelDefinition, params: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return the number of bins; see ``BoostingEngine.binning``."""
        return (self.effective(model, params)["max_bin"],)

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
        weights: Array | None = None,
    ) -> Binned:
        """Bin rows for many boosters; see ``BoostingEngine.bin``."""
        import xgboost

        if isinstance(features, ShardedMatrix):
            arguments = FitArguments("xgboost", model.name, dict(params), self.categories, n_classes, seed)
            return ShardedBins((features, target, weights), scored, arguments)
        threads, stored = useful_threads(features, threads), isinstance(features, StoredMatrix)
        total = total_bins(features, self.categories, self.effective(model, params)["max_bin"])

        def options(params: Mapping[str, Scalar]) -> dict[str, Any]:
            settings = self.effective(model, params)
            return self._options(settings, total, n_classes, seed, threads, stored=stored)[0]

        (bins,) = self.binning(model, params)
        kinds = feature_types(features, self.categories)
        beyond = has_new_levels(scored, features, self.categories)
        try:
            matrix = binned(features, target, weights, nthread=threads, max_bin=bins, **kinds)
            if beyond:
                # Bins would confuse a level beyond those of the fold with the fold's last one.
                rows = plain(scored, nthread=threads, **kinds)
            else:
                # Binned likewise: one byte per cell, instead of eight in XGBoost's plain matrix.
                rows = binned(scored, None, nthread=threads, max_bin=bins, ref=matrix, **kinds)
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(model, error) from error
        return BinnedXGBoost(model, matrix, rows, options)


class BinnedXGBoost(Binned):
    """Rows in XGBoost's bins; see ``Binned``."""

    def __init__(
        self,
        model: ModelDefinition,
        matrix: xgboost.DMatrix,
        scored: xgboost.DMatrix,
        options: Callable[[Mapping[str, Scalar]], dict[str, Any]],
    ) -> None:
        self.model = model
        self.matrix = matrix
        self.scored = scored
        self._options = options

    def start(self, params: Mapping[str, Scalar]) -> GrowingXGBoost:
        """Return a booster without trees; see ``Binned.start``."""
        import xgboost

        try:
            # Cached matrices keep their predictions: a round adds only those of its own trees.
            booster = xgboost.Booster(self._options(params), cache=[self.matrix, self.scored])
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(self.model, error) from error
        return GrowingXGBoost(self, booster)


class GrowingXGBoost(Growing):
    """A booster that grows; see ``Growing``."""

    def __init__(self, binned: BinnedXGBoost, booster: xgboost.Booster) -> None:
        self._binned = binned
        self._booster = booster
        self._rounds = 0

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        import xgboost

        try:
            for number in range(self._rounds, rounds):
                self._booster.update(self._binned.matrix, number)
            found: FloatArray = self._booster.predict(self._binned.scored)
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(self._binned.model, error) from error
        self._rounds = rounds
        return boosted_predictions(self._binned.model, found)


class CudaXGBoostEngine(CudaEngine, XGBoostEngine):
    """Fit boosted trees with XGBoost on a GPU."""

    name = "xgboost-cuda"
    device = "gpu"
    packages = ("xgboost", "cupy", "treelite")
    libraries = ("xgboost", "cupy", "numpy", "treelite")
    # Not tested on a GPU: the codes of categories stay numbers there.
    native_categories = external_memory = distributed = False
    xgboost_device = "cuda"
