"""LightGBM's boosted trees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from dmls_core.models.engines.base import FloatArray, refusal, shares, two_columns, useful_threads
from dmls_core.models.engines.parameters import effective, engine_arguments, recorded
from dmls_core.spec.definitions import ModelDefinition, Scalar

if TYPE_CHECKING:
    import treelite

_PARAMETER = re.compile(r"^\[(\w+): (.*)\]$", re.MULTILINE)

UNRELATED = re.compile(
    r"(.*_filename|.*_column|data|valid|header|two_round|pre_partition|precise_float_parser|parser_config_file"
    r"|machines|num_machines|local_listen_port|time_out|gpu_.*|num_gpu|num_threads|verbosity|eval_at"
    r"|lambdarank_.*|multi_error_top_k|saved_feature_importance_type|label_gain|auc_mu_weights)"
)
"""Parameters of LightGBM for files, networks, other devices and ranking: they do not reach the model."""

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
"""The spec's name -> LightGBM's first name for the same thing."""


class FittedLightGBM:
    """A fitted booster of LightGBM."""

    def __init__(
        self, model: ModelDefinition, params: dict[str, Scalar], booster: lightgbm.Booster, threads: int
    ) -> None:
        self._model = model
        self._params = params
        self._booster = booster
        self._threads = threads

    def predict(self, features: NDArray[np.float32]) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        found = np.asarray(self._booster.predict(features, num_threads=self._threads))
        return two_columns(found) if self._model.task == "classification" and found.ndim == 1 else found

    def importances(self) -> FloatArray:
        """Return the total gain per feature as shares."""
        return shares(self._booster.feature_importance("gain"))

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter."""
        text = self._booster.model_to_string(num_iteration=1)
        said = dict(_PARAMETER.findall(text[text.rindex("parameters:") :]))
        known = {ALIASES[name] for name in self._params if name in ALIASES}
        own = {k: v for k, v in said.items() if v and k not in known and not UNRELATED.fullmatch(k)}
        return recorded(self._model, "cpu", self._params, own)

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model."""
        import treelite

        return treelite.frontend.from_lightgbm(self._booster)


def class_weights(target: NDArray[Any]) -> FloatArray:
    """Return a weight per row, shape (n_rows,), that gives every class in ``target`` the same total."""
    _, codes, counts = np.unique(target, return_inverse=True, return_counts=True)
    weights: FloatArray = (len(target) / (len(counts) * counts))[codes]
    return weights


class LightGBMEngine:
    """Fits boosted trees with LightGBM's own interface, which needs no wrapper's checks."""

    name = "cpu"
    libraries = ("lightgbm", "numpy", "treelite")

    def place(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself: it is in the CPU's memory already."""
        return array

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: NDArray[np.float32],
        target: NDArray[Any],
        *,
        n_classes: int,
        seed: int,
        threads: int,
    ) -> FittedLightGBM:
        """Fit one booster; see ``Engine.fit``."""
        settings = effective(model, self.name, params)
        threads = useful_threads(features, threads)
        options, rounds, balanced = _options(model, settings, n_classes, seed, threads)
        weights = class_weights(target) if balanced else None
        try:
            data = lightgbm.Dataset(features, target, weight=weights, params=options)
            booster = lightgbm.train(options, data, num_boost_round=rounds)
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(model, error) from error
        return FittedLightGBM(model, settings, booster, threads)

    def binning(self, model: ModelDefinition, params: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return the number of bins and the weights' kind; see ``BoostingEngine.binning``."""
        settings = effective(model, self.name, params)
        return settings["max_bin"], settings.get("class_weight", "none")

    def bin(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: NDArray[np.float32],
        target: NDArray[Any],
        scored: NDArray[np.float32],
        *,
        n_classes: int,
        seed: int,
        threads: int,
    ) -> BinnedLightGBM:
        """Bin rows for many boosters; see ``BoostingEngine.bin``."""
        threads = useful_threads(features, threads)

        def options(params: Mapping[str, Scalar]) -> dict[str, Any]:
            return _options(model, effective(model, self.name, params), n_classes, seed, threads)[0]

        balanced = self.binning(model, params)[1] == "balanced"
        weights = class_weights(target) if balanced else None
        try:
            data = lightgbm.Dataset(features, target, weight=weights, params=options(params)).construct()
            rows = lightgbm.Dataset(scored, reference=data, params=options(params)).construct()
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(model, error) from error
        return BinnedLightGBM(model, data, rows, options)


def _options(
    model: ModelDefinition, settings: Mapping[str, Scalar], n_classes: int, seed: int, threads: int
) -> tuple[dict[str, Any], int, bool]:
    """Return LightGBM's own parameters, the number of rounds, and whether classes are balanced."""
    options: dict[str, Any] = engine_arguments(model, settings, "cpu")
    rounds: int = options.pop("n_estimators")
    balanced = options.pop("class_weight", None) == "balanced"
    # Row-wise histograms: with the automatic choice, timing would decide how sums are rounded.
    options |= {"deterministic": True, "force_row_wise": True, "verbosity": -1}
    # Columns that no leaf of min_child_samples rows can split stay: bins are shared by models that differ
    # in it, and drawing from fewer columns would give other trees.
    options |= {"feature_pre_filter": False, "seed": seed, "num_threads": threads}
    if n_classes:
        options["objective"] = "binary" if n_classes == 2 else "multiclass"
        options |= {"num_class": n_classes} if n_classes > 2 else {}
    else:
        options["objective"] = "regression"
    return options, rounds, balanced


class BinnedLightGBM:
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
        try:
            booster = lightgbm.Booster({**self._options(params), "metric": "none"}, self._data)
            booster.add_valid(self._scored, "scored")
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(self._model, error) from error
        return GrowingLightGBM(self._model, booster)


class GrowingLightGBM:
    """A booster that grows; see ``Growing``."""

    def __init__(self, model: ModelDefinition, booster: lightgbm.Booster) -> None:
        self._model = model
        self._booster = booster

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        found: list[FloatArray] = []

        def keep(prediction: FloatArray, _data: lightgbm.Dataset) -> tuple[str, float, bool]:
            found.append(np.array(prediction))
            return "kept", 0.0, True

        try:
            # A round that finds no split ends the growth: none after it would find one.
            while self._booster.current_iteration() < rounds and not self._booster.update():
                pass
            # LightGBM keeps the prediction of its validation rows up to date, and shows it to metrics.
            self._booster.eval_valid(keep)
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise refusal(self._model, error) from error
        classes = self._model.task == "classification"
        return two_columns(found[0]) if classes and found[0].ndim == 1 else found[0]
