"""Gradient-boosted trees of LightGBM, by the names of its scikit-learn interface."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmls_core.hardware import available_cpus
from dmls_core.models.engines import portfolios
from dmls_core.models.engines.base import Argument, Array, Binned, Growing, shares
from dmls_core.models.engines.booster import CLASS_WEIGHT, Booster, Fit, boosted_models, share
from dmls_core.models.engines.ensemble import FittedBooster, boosted_predictions
from dmls_core.models.engines.lightgbm_rows import NodeRows, dataset
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Scalar

if TYPE_CHECKING:
    import lightgbm
    import numpy as np
    import treelite
    from numpy.typing import NDArray

    from dmls_core.models.engines.base import FloatArray

_HYPERPARAMETERS = (
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
    share("subsample", "Share of the rows in each sample."),
    HyperparameterDefinition(
        "subsample_freq",
        "int",
        # With LightGBM's default of 0, subsample would have no effect.
        1,
        "Rounds between two samples of the rows; 0 turns subsample off.",
        low=0,
        high=100_000,
    ),
    share("colsample_bytree", "Share of the columns that each tree chooses from."),
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

_MODELS = boosted_models(
    "lightgbm",
    "LightGBM's boosted trees",
    _HYPERPARAMETERS,
    CLASS_WEIGHT,
    rounds=100,
    rate=0.1,
    search={
        "num_leaves": {"min": 8, "max": 128, "log": True},
        "min_child_samples": {"min": 5, "max": 100, "log": True},
        "subsample": {"min": 0.5, "max": 1.0},
        "colsample_bytree": {"min": 0.5, "max": 1.0},
        "reg_lambda": {"min": 0.01, "max": 10.0, "log": True},
    },
    portfolio=portfolios.LIGHTGBM,
)


_PARAMETER = re.compile(r"^\[(\w+): (.*)\]$", re.MULTILINE)

_UNRELATED = re.compile(
    r"(.*_filename|.*_column|data|valid|header|two_round|pre_partition|precise_float_parser|parser_config_file"
    r"|machines|num_machines|local_listen_port|time_out|gpu_.*|num_gpu|num_threads|verbosity|eval_at"
    r"|lambdarank_.*|multi_error_top_k|saved_feature_importance_type|label_gain|auc_mu_weights)"
)
"""Parameters of LightGBM for files, networks, other devices and ranking, which do not change the model."""

_HISTOGRAM_MIB = 64
"""Memory for the histograms of leaves, in MiB. LightGBM computes others again: on 4,000 x 1,000 rows, 127
leaves took 4 % more CPU with it, and 437 MB less."""

_SAMPLED = 200_000
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
        recorded = {ALIASES[name] for name in self._settings if name in ALIASES}
        library = {k: v for k, v in said.items() if v and k not in recorded and not _UNRELATED.fullmatch(k)}
        return LightGBMEngine.recorded(self._settings, library)

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


class LightGBMEngine(Booster):
    """Fit boosted trees with LightGBM's native interface, without the checks of its scikit-learn wrapper."""

    name = "lightgbm"
    device = "cpu"
    models = _MODELS
    packages = ("lightgbm", "treelite")
    libraries = ("lightgbm", "numpy", "treelite")
    arguments = {"max_depth": Argument(values={"none": -1})}  # noqa: RUF012
    distributed = True
    library = "lightgbm"

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:  # noqa: ARG003
        """Estimate the sample for the bins, the bins in columns and in rows, and the histograms."""
        leaf = 16 * columns * int(params.get("max_bin", 255))
        leaves = max(2, min(_HISTOGRAM_MIB << 20, leaf * int(params.get("num_leaves", 31))) // leaf)
        return 16 * min(rows, _SAMPLED) * columns + 2 * rows * columns + leaf * (leaves + available_cpus())

    @classmethod
    def error_class(cls) -> type[Exception]:
        """Return LightGBM's exception."""
        from lightgbm.basic import LightGBMError

        return LightGBMError

    def train(
        self, fit: Fit, features: Array, target: NDArray[Any], weights: FloatArray | None
    ) -> lightgbm.Booster:
        """Return a fitted booster; see ``Booster.train``."""
        import lightgbm

        options = _options(fit, fit.settings, features)
        data = dataset(features, target, weights, self.categories, options)
        return lightgbm.train(options, data, num_boost_round=int(fit.settings["n_estimators"]))

    def bin_rows(
        self, fit: Fit, features: Array, target: NDArray[Any], weights: FloatArray | None, scored: Array
    ) -> Binned:
        """Bin rows for many boosters; see ``Booster.bin_rows``."""
        import lightgbm

        options = _options(fit, fit.settings, features)
        data = dataset(features, target, weights, self.categories, options).construct()
        rows = lightgbm.Dataset(scored, reference=data, params=options).construct()
        return BinnedLightGBM(fit, features, data, rows)

    def wrap(self, fit: Fit, booster: lightgbm.Booster, features: Array) -> FittedLightGBM:  # noqa: ARG002
        """Return a booster as a ``Fitted``; see ``Booster.wrap``."""
        return FittedLightGBM(fit.model, fit.settings, booster, fit.threads)


def _options(fit: Fit, settings: Mapping[str, Scalar], features: Array) -> dict[str, Any]:
    """Return LightGBM's parameters for a fit with other ``settings``, but for the number of rounds."""
    options: dict[str, Any] = LightGBMEngine.library_arguments(settings)
    del options["n_estimators"]
    options.pop("class_weight", None)  # the weights of the rows contain it
    # Row-wise histograms: with the automatic choice, timing would decide how sums are rounded.
    options |= {"deterministic": True, "force_row_wise": True, "verbosity": -1}
    # Keep columns that cannot be split into leaves of min_child_samples rows: models with other values of it
    # share the bins, and a sample of fewer columns would give other trees.
    options |= {"feature_pre_filter": False, "seed": fit.seed, "num_threads": fit.threads}
    # Without a limit, each leaf has a histogram: 500 MB at 127 leaves and 1,000 columns.
    options["histogram_pool_size"] = _HISTOGRAM_MIB
    if fit.n_classes:
        options["objective"] = "binary" if fit.n_classes == 2 else "multiclass"
        options |= {"num_class": fit.n_classes} if fit.n_classes > 2 else {}
    else:
        options["objective"] = "regression"
    if isinstance(features, NodeRows):
        options |= features.options
    return options


@dataclass(frozen=True, slots=True)
class BinnedLightGBM(Binned):
    """Rows in LightGBM's bins; see ``Binned``."""

    fit: Fit
    features: Array
    data: lightgbm.Dataset
    scored: lightgbm.Dataset

    def start(self, params: Mapping[str, Scalar]) -> GrowingLightGBM:
        """Return a booster without trees; see ``Binned.start``."""
        import lightgbm

        model = self.fit.model
        options = _options(self.fit, LightGBMEngine.effective(model, params), self.features)
        with LightGBMEngine.refusing(model):
            booster = lightgbm.Booster({**options, "metric": "none"}, self.data)
            booster.add_valid(self.scored, "scored")
        return GrowingLightGBM(model, booster)


@dataclass(frozen=True, slots=True)
class GrowingLightGBM(Growing):
    """A booster that grows; see ``Growing``."""

    model: ModelDefinition
    booster: lightgbm.Booster

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        import numpy as np

        predictions: list[FloatArray] = []

        def keep(prediction: FloatArray, _data: lightgbm.Dataset) -> tuple[str, float, bool]:
            predictions.append(np.array(prediction))
            return "kept", 0.0, True

        with LightGBMEngine.refusing(self.model):
            # After a round without a split, no later round would find one.
            while self.booster.current_iteration() < rounds and not self.booster.update():
                pass
            # LightGBM updates the predictions of its validation rows and passes them to metrics.
            self.booster.eval_valid(keep)
        return boosted_predictions(self.model, predictions[0])
