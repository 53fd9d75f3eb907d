"""Gradient-boosted trees of LightGBM, by the names of its scikit-learn interface."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dmls_core.hardware import available_cpus
from dmls_core.models.cluster import ShardedMatrix
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
    useful_threads,
)
from dmls_core.models.engines.ensemble import FittedBooster, boosted_predictions
from dmls_core.models.engines.learning_rate import AUTO, learning_rate
from dmls_core.models.engines.lightgbm_rows import NodeRows, dataset
from dmls_core.models.engines.sharded import FitArguments, ShardedBins, fit_sharded
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Scalar, Task

if TYPE_CHECKING:
    import lightgbm
    import numpy as np
    import treelite
    from numpy.typing import NDArray

    from dmls_core.models.engines.base import FloatArray

_SHARED = (
    HyperparameterDefinition("n_estimators", "int", 100, "Boosting rounds.", low=1, high=100_000),
    learning_rate(0.1),
    HyperparameterDefinition("num_leaves", "int", 31, "Most leaves of a tree.", low=2, high=131_072),
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
        "min_child_samples", "int", 20, "Rows that each leaf needs.", low=0, high=10_000_000
    ),
    HyperparameterDefinition(
        "min_child_weight", "float", 1e-3, "Sum of weights that each leaf needs.", low=0.0, high=1e9
    ),
    HyperparameterDefinition("min_split_gain", "float", 0.0, "Least gain of a split.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "subsample", "float", 1.0, "Share of the rows in each sample.", low=0.0, high=1.0, low_open=True
    ),
    HyperparameterDefinition(
        "subsample_freq",
        "int",
        # With LightGBM's default of 0, subsample would have no effect.
        1,
        "Rounds between two samples of the rows; 0 turns subsample off.",
        low=0,
        high=100_000,
    ),
    HyperparameterDefinition(
        "colsample_bytree",
        "float",
        1.0,
        "Share of the columns that each tree chooses from.",
        low=0.0,
        high=1.0,
        low_open=True,
    ),
    HyperparameterDefinition("reg_alpha", "float", 0.0, "L1 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition("reg_lambda", "float", 0.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_bin", "int", 255, "Bins that each column is sorted into.", low=2, high=65_535
    ),
    HyperparameterDefinition(
        "boosting_type",
        "choice",
        "gbdt",
        "Plain boosting (gbdt), or boosting that drops earlier trees at random (dart).",
        choices=("gbdt", "dart"),
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
        name="lightgbm-classifier" if task == "classification" else "lightgbm-regressor",
        task=task,
        family="lightgbm",
        description=description,
        hyperparameters=by_name(*own),
        missing_values=True,
        search={
            "n_estimators": {"min": 50, "max": 500},
            "learning_rate": {"value": AUTO},
            "num_leaves": {"min": 8, "max": 128, "log": True},
            "min_child_samples": {"min": 5, "max": 100, "log": True},
            "subsample": {"min": 0.5, "max": 1.0},
            "colsample_bytree": {"min": 0.5, "max": 1.0},
            "reg_lambda": {"min": 0.01, "max": 10.0, "log": True},
        },
        portfolio=portfolios.LIGHTGBM,
    )


MODELS = (
    _boosted("classification", "LightGBM's boosted trees for classes."),
    _boosted("regression", "LightGBM's boosted trees for numbers."),
)


_PARAMETER = re.compile(r"^\[(\w+): (.*)\]$", re.MULTILINE)

UNRELATED = re.compile(
    r"(.*_filename|.*_column|data|valid|header|two_round|pre_partition|precise_float_parser|parser_config_file"
    r"|machines|num_machines|local_listen_port|time_out|gpu_.*|num_gpu|num_threads|verbosity|eval_at"
    r"|lambdarank_.*|multi_error_top_k|saved_feature_importance_type|label_gain|auc_mu_weights)"
)
"""Parameters of LightGBM for files, networks, other devices and ranking, which do not change the model."""

HISTOGRAM_MIB = 64
"""Memory for the histograms of leaves, in MiB. LightGBM computes others again: on 4,000 x 1,000 rows, 127
leaves took 4 % more CPU with it, and 437 MB less."""

SAMPLED = 200_000
"""Rows of which LightGBM copies the values, as float64, to find the bins; its lists grow by doubling."""

ALIASES = {
    "n_estimators": "num_iterations",
    "min_child_samples": "min_data_in_leaf",
    "min_child_weight": "min_sum_hessian_in_leaf",
    "min_split_gain": "min_gain_to_split",
    "subsample": "bagging_fraction",
    "subsample_freq": "bagging_freq",
    "colsample_bytree": "feature_fraction",
    "reg_alpha": "lambda_l1",
    "reg_lambda": "lambda_l2",
    "boosting_type": "boosting",
    "subsample_for_bin": "bin_construct_sample_cnt",
}
"""The spec's name -> LightGBM's name."""


class FittedLightGBM(FittedBooster):
    """A fitted booster of LightGBM."""

    def __init__(
        self, model: ModelDefinition, settings: Mapping[str, Scalar], booster: lightgbm.Booster, threads: int
    ) -> None:
        self.model = model
        self._settings = settings
        self.booster = booster
        self._threads = threads

    def answers(self, features: NDArray[np.float32], *, margins: bool) -> FloatArray:
        """Predict; see ``FittedBooster.answers``."""
        import numpy as np

        return np.asarray(self.booster.predict(features, raw_score=margins, num_threads=self._threads))

    def importances(self) -> FloatArray:
        """Return the total gain per feature as shares."""
        return shares(self.booster.feature_importance("gain"))

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        text = self.booster.model_to_string(num_iteration=1)
        said = dict(_PARAMETER.findall(text[text.rindex("parameters:") :]))
        known = {ALIASES[name] for name in self._settings if name in ALIASES}
        own = {k: v for k, v in said.items() if v and k not in known and not UNRELATED.fullmatch(k)}
        return LightGBMEngine.recorded(self._settings, own)

    def can_stop_earlier(self) -> bool:
        """Return whether a round does not change those before: dart scales them down."""
        return self._settings["boosting_type"] != "dart"

    def first_rounds(self, rounds: int) -> FittedLightGBM:
        """Return the model after its first rounds; see ``Fitted.first_rounds``."""
        import lightgbm

        shorter = lightgbm.Booster(model_str=self.booster.model_to_string(num_iteration=rounds))
        return FittedLightGBM(self.model, {**self._settings, "n_estimators": rounds}, shorter, self._threads)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        import treelite

        return treelite.frontend.from_lightgbm(self.booster)


def class_weights(target: NDArray[Any]) -> FloatArray:
    """Return row weights, (n_rows,), that give every class in ``target`` the same total."""
    import numpy as np

    _, codes, counts = np.unique(target, return_inverse=True, return_counts=True)
    weights: FloatArray = (len(target) / (len(counts) * counts))[codes]
    return weights


def row_weights(
    target: NDArray[Any], weights: NDArray[np.float64] | None, *, balanced: bool
) -> FloatArray | None:
    """Return the weights of rows, times those of their classes if these are ``balanced``."""
    if not balanced:
        return weights
    return class_weights(target) if weights is None else weights * class_weights(target)


class LightGBMEngine(BoostingEngine):
    """Fit boosted trees with LightGBM's native interface, without the checks of its scikit-learn wrapper."""

    name = "lightgbm"
    device = "cpu"
    models = MODELS
    packages = ("lightgbm", "treelite")
    libraries = ("lightgbm", "numpy", "treelite")
    arguments = {"max_depth": Argument(values={"none": -1})}  # noqa: RUF012
    native_categories = True
    sample_weights = True
    distributed = True

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:  # noqa: ARG003
        """Estimate the sample for the bins, the bins in columns and in rows, and the histograms."""
        leaf = 16 * columns * int(params.get("max_bin", 255))
        leaves = max(2, min(HISTOGRAM_MIB << 20, leaf * int(params.get("num_leaves", 31))) // leaf)
        return 16 * min(rows, SAMPLED) * columns + 2 * rows * columns + leaf * (leaves + available_cpus())

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
    ) -> FittedLightGBM:
        """Fit one booster; see ``Engine.fit``."""
        import lightgbm

        settings = self.effective(model, params)
        balanced = settings.get("class_weight") == "balanced"
        weighing = row_weights(target, weights, balanced=balanced)
        if isinstance(features, ShardedMatrix):
            arguments = self._sharded(model, params, n_classes, seed)
            return FittedLightGBM(
                model, settings, fit_sharded((features, target, weighing), arguments), threads
            )
        threads = useful_threads(features, threads)
        options, rounds = _options(settings, n_classes, seed, threads, features)
        try:
            data = dataset(features, target, weighing, self.categories, options)
            booster = lightgbm.train(options, data, num_boost_round=rounds)
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(model, error) from error
        return FittedLightGBM(model, settings, booster, threads)

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
        """Bin rows for many boosters; see ``BoostingEngine.bin``."""
        import lightgbm

        balanced = self.binning(model, params)[1] == "balanced"
        weighing = row_weights(target, weights, balanced=balanced)
        if isinstance(features, ShardedMatrix):
            arguments = self._sharded(model, params, n_classes, seed)
            return ShardedBins((features, target, weighing), scored, arguments)
        threads = useful_threads(features, threads)

        def options(params: Mapping[str, Scalar]) -> dict[str, Any]:
            return _options(self.effective(model, params), n_classes, seed, threads, features)[0]

        try:
            data = dataset(features, target, weighing, self.categories, options(params)).construct()
            rows = lightgbm.Dataset(scored, reference=data, params=options(params)).construct()
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(model, error) from error
        return BinnedLightGBM(model, data, rows, options)

    def _sharded(
        self, model: ModelDefinition, params: Mapping[str, Scalar], n_classes: int, seed: int
    ) -> FitArguments:
        """Return a fit's arguments for nodes; the weights of their rows contain those of the classes."""
        own = {name: value for name, value in params.items() if name != "class_weight"}
        return FitArguments("lightgbm", model.name, own, self.categories, n_classes, seed)


def _options(
    settings: Mapping[str, Scalar], n_classes: int, seed: int, threads: int, features: Array
) -> tuple[dict[str, Any], int]:
    """Return LightGBM's parameters, and the number of rounds."""
    options: dict[str, Any] = LightGBMEngine.library_arguments(settings)
    rounds: int = options.pop("n_estimators")
    options.pop("class_weight", None)  # the weights of the rows contain it
    # Row-wise histograms: with the automatic choice, timing would decide how sums are rounded.
    options |= {"deterministic": True, "force_row_wise": True, "verbosity": -1}
    # Keep columns that cannot be split into leaves of min_child_samples rows: models with other values of it
    # share the bins, and a sample of fewer columns would give other trees.
    options |= {"feature_pre_filter": False, "seed": seed, "num_threads": threads}
    # Without a limit, each leaf has a histogram: 500 MB at 127 leaves and 1,000 columns.
    options["histogram_pool_size"] = HISTOGRAM_MIB
    if n_classes:
        options["objective"] = "binary" if n_classes == 2 else "multiclass"
        options |= {"num_class": n_classes} if n_classes > 2 else {}
    else:
        options["objective"] = "regression"
    if isinstance(features, NodeRows):
        options |= features.options
    return options, rounds


class BinnedLightGBM(Binned):
    """Rows in LightGBM's bins; see ``Binned``."""

    def __init__(
        self,
        model: ModelDefinition,
        data: lightgbm.Dataset,
        scored: lightgbm.Dataset,
        options: Callable[[Mapping[str, Scalar]], dict[str, Any]],
    ) -> None:
        self._model = model
        self._data = data
        self._scored = scored
        self._options = options

    def start(self, params: Mapping[str, Scalar]) -> GrowingLightGBM:
        """Return a booster without trees; see ``Binned.start``."""
        import lightgbm

        try:
            booster = lightgbm.Booster({**self._options(params), "metric": "none"}, self._data)
            booster.add_valid(self._scored, "scored")
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(self._model, error) from error
        return GrowingLightGBM(self._model, booster)


class GrowingLightGBM(Growing):
    """A booster that grows; see ``Growing``."""

    def __init__(self, model: ModelDefinition, booster: lightgbm.Booster) -> None:
        self._model = model
        self._booster = booster

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        import lightgbm
        import numpy as np

        found: list[FloatArray] = []

        def keep(prediction: FloatArray, _data: lightgbm.Dataset) -> tuple[str, float, bool]:
            found.append(np.array(prediction))
            return "kept", 0.0, True

        try:
            # After a round without a split, no later round would find one.
            while self._booster.current_iteration() < rounds and not self._booster.update():
                pass
            # LightGBM updates the predictions of its validation rows and passes them to metrics.
            self._booster.eval_valid(keep)
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(self._model, error) from error
        return boosted_predictions(self._model, found[0])
