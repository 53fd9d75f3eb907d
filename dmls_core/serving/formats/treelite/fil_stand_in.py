"""A stand-in for Triton's FIL backend on the CPU, run by Triton's Python backend.

As ``backends/fil/model.py`` it serves the repositories of the genuine backend unchanged. It accepts and
refuses what release 26.06 does, with three exceptions, all of them refused: wrong dims and inputs of float64,
which the genuine backend answers wrongly, and ``treeshap_output``. Its predictions are those of the genuine
backend on a CPU, bit for bit. It proves repository, configuration and protocol, not that backend's code.

It runs in a separate environment, so it imports nothing of DMLS but copies of two of its files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import treelite
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from gtil import predict_float32  # type: ignore[import-not-found]
from numpy.typing import NDArray
from private_memory import make_memory_private  # type: ignore[import-not-found]

INPUT, OUTPUT, SHAP = "input__0", "output__0", "treeshap_output"

FloatArray = NDArray[np.float32]

_FILES = {
    "xgboost": "xgboost.model",
    "xgboost_json": "xgboost.json",
    "xgboost_ubj": "xgboost.ubj",
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}
"""Default file name of each serialization format."""

_FLAGS = ("true", "false")

_MULTI_CLASS = 2
"""Treelite's number of the task type ``kMultiClf``."""


class TritonPythonModel:
    """One instance of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model and check the configuration; raise if the genuine backend would refuse it."""
        make_memory_private()
        _check_numpy()
        config = json.loads(args["model_config"])
        parameters = Parameters(config)
        features, outputs = _tensor_dims(config)
        self.model = _load(config, parameters, Path(args["model_repository"]) / args["model_version"])
        header = self.model.get_header_accessor()
        if int(header.get_field("num_target")[0]) != 1:
            raise pb_utils.TritonModelException("Multi-target model not supported")
        self.classes = int(header.get_field("num_class")[0])
        # The parameter of releases up to 25.08 is optional since, and goes first if it is a flag.
        old = parameters.text("output_class", "")
        self.classifier = old == "true" if old in _FLAGS else parameters.flag("is_classifier")
        probabilities = parameters.flag("predict_proba", default=False)
        self.labels = self.classifier and not probabilities
        self.threshold = parameters.number("threshold") if self.classifier else 0.5
        self.threads = int(parameters.number("cpu_nthread", default=-1))
        parameters.flag("use_experimental_optimizations", default=False)
        if probabilities and int(header.get_field("task_type")[0]) == _MULTI_CLASS:
            one_leaf_value = int(header.get_field("leaf_vector_shape")[1]) == 1
            header.set_field("postprocessor", "softmax" if one_leaf_value else "identity_multiclass")
        if features not in ([-1], [self.model.num_feature]):
            raise pb_utils.TritonModelException(
                f"{INPUT} has dims {features}, but the model has {self.model.num_feature} features"
            )
        allowed = [[1]] if self.labels else [[self.classes]]
        if self.classifier and probabilities and self.classes == 1:
            allowed.append([2])
        if outputs not in allowed:
            raise pb_utils.TritonModelException(f"{OUTPUT} has dims {outputs}, expected one of {allowed}")
        self.both_classes = outputs == [2] and self.classes == 1
        pb_utils.Logger.log_info(
            f"FIL stand-in: {args['model_name']} version {args['model_version']}, "
            f"{self.model.num_tree} trees, {self.model.num_feature} features, Treelite {treelite.__version__}"
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Respond to a batch of requests with one prediction of all their rows."""
        rows = [pb_utils.get_input_tensor_by_name(request, INPUT).as_numpy() for request in requests]
        predicted = self.predict(np.concatenate(rows))
        parts = np.split(predicted, np.cumsum([len(part) for part in rows])[:-1])
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(OUTPUT, np.ascontiguousarray(part))])
            for part in parts
        ]

    def predict(self, rows: FloatArray) -> FloatArray:
        """Return probabilities, classes or values for ``rows`` (n, features), float32."""
        scores: FloatArray = predict_float32(self.model, rows, threads=self.threads)
        if self.both_classes:
            scores = np.hstack([1 - scores, scores])
        elif self.labels:
            chosen = scores.argmax(axis=1) if self.classes > 1 else scores[:, 0] > self.threshold
            scores = chosen.astype(np.float32)
        # The genuine backend drops dimensions of size 1: dims [ 1 ] come back as [ n ].
        return scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores


class Parameters:
    """``parameters`` of a configuration, parsed as by the genuine backend."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._texts: dict[str, str] = {
            name: value.get("string_value", "") for name, value in config.get("parameters", {}).items()
        }

    def text(self, name: str, default: str) -> str:
        """Return a parameter as text."""
        return self._texts.get(name, default)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """Return a parameter that is ``true`` or ``false``; without a default it is required."""
        if name not in self._texts and default is not None:
            return default
        text = self._required(name)
        if text not in _FLAGS:
            raise pb_utils.TritonModelException(f"parameter {name} must be 'true' or 'false', found {text!r}")
        return text == "true"

    def number(self, name: str, default: float | None = None) -> float:
        """Return a numeric parameter, or the default if it is no number; without a default it is required."""
        if name not in self._texts and default is not None:
            return default
        text = self._required(name)
        try:
            return float(text)
        except ValueError:
            if default is not None:
                return default
            raise pb_utils.TritonModelException(
                f"parameter {name} must be a number, found {text!r}"
            ) from None

    def _required(self, name: str) -> str:
        if name not in self._texts:
            raise pb_utils.TritonModelException(f"Required parameter {name} not found in config")
        return self._texts[name]


def _tensor_dims(config: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the dims of input and output."""
    inputs = {tensor["name"]: tensor for tensor in config["input"]}
    outputs = {tensor["name"]: tensor for tensor in config["output"]}
    if set(inputs) != {INPUT} or OUTPUT not in outputs:
        raise pb_utils.TritonModelException(f"FIL models have one input, {INPUT}, and an output {OUTPUT}")
    if SHAP in outputs:
        raise pb_utils.TritonModelException(f"the FIL stand-in offers no {SHAP}")
    for tensor in (inputs[INPUT], outputs[OUTPUT]):
        if tensor["data_type"] != "TYPE_FP32":
            raise pb_utils.TritonModelException(f"{tensor['name']} must be TYPE_FP32")
    return [int(dim) for dim in inputs[INPUT]["dims"]], [int(dim) for dim in outputs[OUTPUT]["dims"]]


def _load(config: dict[str, Any], parameters: Parameters, folder: Path) -> treelite.Model:
    """Load the model file of a version's folder."""
    model_type = parameters.text("model_type", "xgboost")
    if model_type not in _FILES:
        raise pb_utils.TritonModelException(f"{model_type} is no serialization format that FIL knows")
    path = folder / (config.get("default_model_filename") or _FILES[model_type])
    if not path.is_file():
        raise pb_utils.TritonModelException(f"Could not open model file {path}")
    try:
        if model_type == "treelite_checkpoint":
            return treelite.Model.deserialize(path)
        if model_type == "lightgbm":
            return treelite.frontend.load_lightgbm_model(path)
        if model_type == "xgboost":
            return treelite.frontend.load_xgboost_model_legacy_binary(path)
        return treelite.frontend.load_xgboost_model(
            path,
            format_choice="json" if model_type == "xgboost_json" else "ubjson",
            allow_unknown_field=parameters.flag("xgboost_allow_unknown_field", default=False),
        )
    except treelite.TreeliteError as error:
        raise pb_utils.TritonModelException(f"{path}: {error}") from error


def _check_numpy() -> None:
    """Raise for a NumPy version with which the Python backend reads wrong data without an error."""
    values = pb_utils.Tensor("check", np.arange(4, dtype=np.float32)).as_numpy()
    if values.tolist() != [0.0, 1.0, 2.0, 3.0]:
        raise pb_utils.TritonModelException(
            f"NumPy {np.__version__} does not fit this Python backend: use 1.26"
        )
