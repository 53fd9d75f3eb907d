"""Gradient-boosted trees of XGBoost, on the CPU and on CUDA, by the names of its scikit-learn interface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dmls_core.models.cluster import ShardedMatrix
from dmls_core.models.engines import portfolios
from dmls_core.models.engines.base import Argument, Array, Binned, Device, Growing, shares
from dmls_core.models.engines.booster import Booster, Fit, boosted_models, share
from dmls_core.models.engines.cuda import CudaEngine
from dmls_core.models.engines.ensemble import FittedBooster, boosted_predictions
from dmls_core.models.engines.xgboost_matrices import (
    binned,
    feature_types,
    fit_bytes,
    has_new_levels,
    plain,
    total_bins,
)
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Scalar
from dmls_core.stored_matrix import StoredMatrix

if TYPE_CHECKING:
    import treelite
    import xgboost

    from dmls_core.models.engines.base import FloatArray


_HYPERPARAMETERS = (
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
    share("subsample", "Share of the rows that each tree is grown on."),
    share("colsample_bytree", "Share of the columns that each tree chooses from."),
    share("colsample_bylevel", "Share of the columns that each level chooses from."),
    share("colsample_bynode", "Share of the columns that each split chooses from."),
    HyperparameterDefinition("reg_alpha", "float", 0.0, "L1 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition("reg_lambda", "float", 1.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_bin", "int", 256, "Bins that each column is sorted into.", low=2, high=65_536
    ),
)

_MODELS = boosted_models(
    "xgboost",
    "XGBoost's boosted trees",
    _HYPERPARAMETERS,
    HyperparameterDefinition(
        "scale_pos_weight",
        "float",
        1.0,
        "Weight of the second of two classes.",
        low=0.0,
        high=1e9,
        low_open=True,
    ),
    rounds=100,
    rate=0.3,
    search={
        "max_depth": {"min": 3, "max": 10},
        "min_child_weight": {"min": 0.5, "max": 20.0, "log": True},
        "subsample": {"min": 0.5, "max": 1.0},
        "colsample_bytree": {"min": 0.5, "max": 1.0},
        "reg_lambda": {"min": 0.01, "max": 10.0, "log": True},
    },
    portfolio=portfolios.XGBOOST,
)


HISTOGRAM_BYTES = 64 * 2**20
"""Memory for the cached histograms of nodes, of 16 bytes per bin. XGBoost caches up to 65,536 of them (14 GB
at 54 columns and 256 bins), and computes others again; on 60,000 x 54 rows, depth 12 took no longer."""

_ALIASES = frozenset({"eta", "gamma", "min_split_loss", "alpha", "lambda", "seed", "nthread", "n_jobs"})
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
        predict_type = "margin" if margins else "value"
        return self._engine.fetch(self.booster.inplace_predict(features, predict_type=predict_type))

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
        library: dict[str, str] = {
            **learner["generic_param"],
            **learner["learner_train_param"],
            **booster["gbtree_train_param"],
            **booster["tree_train_param"],
            "base_score": learner["learner_model_param"]["base_score"],
        }
        return self._engine.recorded(
            self._settings,
            {name: text for name, text in library.items() if name not in _ALIASES and text != ""},
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


class XGBoostEngine(Booster):
    """Fit boosted trees with XGBoost's native interface, without the checks of its scikit-learn wrapper."""

    name = "xgboost"
    device: ClassVar[Device] = "cpu"
    models = _MODELS
    packages: ClassVar[tuple[str, ...]] = ("xgboost", "treelite")
    libraries: ClassVar[tuple[str, ...]] = ("xgboost", "numpy", "treelite")
    arguments: ClassVar[Mapping[str, Argument]] = {
        "max_depth": Argument(values={"none": 0}),
        "max_leaves": Argument(values={"none": 0}),
    }
    # On 200 rows XGBoost lost half of its r2 at 1e-4, and all of it at 1e-5 and at 1e20: it makes no split
    # that gains less than 1e-6, and sums squares in 32 bits.
    target_scale = (1e-3, 1e17)
    external_memory: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    library = "xgboost"
    xgboost_device: ClassVar[str] = "cpu"  # XGBoost's name of the device

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:
        """Estimate sketches, bins and histograms; see ``Engine.fit_bytes``."""
        return fit_bytes(rows, columns, params, HISTOGRAM_BYTES, stored=stored)

    @classmethod
    def error_class(cls) -> type[Exception]:
        """Return XGBoost's exception."""
        from xgboost.core import XGBoostError

        return XGBoostError

    def train(self, fit: Fit, features: Array, target: Array, weights: Array | None) -> xgboost.Booster:
        """Return a fitted booster; see ``Booster.train``."""
        import xgboost

        stored = isinstance(features, StoredMatrix)
        bins = total_bins(features, self.categories, fit.settings["max_bin"])
        options = self.options(fit, fit.settings, bins, stored=stored)
        types = feature_types(features, self.categories)
        matrix = binned(features, target, weights, nthread=fit.threads, max_bin=options["max_bin"], **types)
        return xgboost.train(options, matrix, num_boost_round=int(fit.settings["n_estimators"]))

    def options(self, fit: Fit, settings: Mapping[str, Scalar], bins: int, *, stored: bool) -> dict[str, Any]:
        """Return XGBoost's parameters for a fit with other ``settings``, but for the number of rounds.

        ``bins`` are those of all columns; ``stored``: the rows are in a file.
        """
        options: dict[str, Any] = self.library_arguments(settings)
        del options["n_estimators"]
        options |= {"device": self.xgboost_device, "seed": fit.seed, "nthread": fit.threads, "verbosity": 0}
        if fit.n_classes:
            options["objective"] = "binary:logistic" if fit.n_classes == 2 else "multi:softprob"
            options |= {"num_class": fit.n_classes} if fit.n_classes > 2 else {}
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
        return options

    def bin_rows(
        self, fit: Fit, features: Array, target: Array, weights: Array | None, scored: Array
    ) -> Binned:
        """Bin rows for many boosters; see ``Booster.bin_rows``."""
        stored, max_bin = isinstance(features, StoredMatrix), fit.settings["max_bin"]
        bins = total_bins(features, self.categories, max_bin)
        types = feature_types(features, self.categories)
        matrix = binned(features, target, weights, nthread=fit.threads, max_bin=max_bin, **types)
        if has_new_levels(scored, features, self.categories):
            # Bins would confuse a level beyond those of the fold with the fold's last one.
            rows = plain(scored, nthread=fit.threads, **types)
        else:
            # Binned likewise: one byte per cell, instead of eight in XGBoost's plain matrix.
            rows = binned(scored, None, nthread=fit.threads, max_bin=max_bin, ref=matrix, **types)
        return BinnedXGBoost(self, fit, matrix, rows, bins, stored)

    def wrap(self, fit: Fit, booster: xgboost.Booster, features: Array) -> FittedXGBoost:
        """Return a booster as a ``Fitted``; see ``Booster.wrap``."""
        if isinstance(features, ShardedMatrix):
            booster.set_param({"nthread": fit.threads})  # it has those of a node
        return FittedXGBoost(fit.model, self, fit.settings, booster, features.shape[1])


@dataclass(frozen=True, slots=True)
class BinnedXGBoost(Binned):
    """Rows in XGBoost's bins; see ``Binned``, and ``XGBoostEngine.options`` for ``bins`` and ``stored``."""

    engine: XGBoostEngine
    fit: Fit
    matrix: xgboost.DMatrix
    scored: xgboost.DMatrix
    bins: int
    stored: bool

    def start(self, params: Mapping[str, Scalar]) -> GrowingXGBoost:
        """Return a booster without trees; see ``Binned.start``."""
        import xgboost

        settings = self.engine.effective(self.fit.model, params)
        options = self.engine.options(self.fit, settings, self.bins, stored=self.stored)
        with self.engine.refusing(self.fit.model):
            # Cached matrices keep their predictions: a round adds only those of its own trees.
            booster = xgboost.Booster(options, cache=[self.matrix, self.scored])
        return GrowingXGBoost(self, booster)


class GrowingXGBoost(Growing):
    """A booster that grows; see ``Growing``."""

    def __init__(self, binned: BinnedXGBoost, booster: xgboost.Booster) -> None:
        self._binned = binned
        self._booster = booster
        self._rounds = 0

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        model = self._binned.fit.model
        with self._binned.engine.refusing(model):
            for number in range(self._rounds, rounds):
                self._booster.update(self._binned.matrix, number)
            predictions: FloatArray = self._booster.predict(self._binned.scored)
        self._rounds = rounds
        return boosted_predictions(model, predictions)


class CudaXGBoostEngine(CudaEngine, XGBoostEngine):
    """Fit boosted trees with XGBoost on a GPU."""

    name = "xgboost-cuda"
    device = "gpu"
    packages = ("xgboost", "cupy", "treelite")
    libraries = ("xgboost", "cupy", "numpy", "treelite")
    # Not tested on a GPU: the codes of categories stay numbers there.
    native_categories = external_memory = distributed = False
    xgboost_device = "cuda"
