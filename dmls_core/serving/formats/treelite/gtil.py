"""Predict with a Treelite model in single precision, as the FIL backend does on a CPU, bit for bit.

``treelite.gtil.predict`` has the precision of the model's leaves: float64 for scikit-learn and LightGBM.
The C function below it has that of its input, and the FIL backend calls it with float32.

nvForest, NVIDIA's FIL as a library, runs on a CPU too and is several times as fast, where it is installed.

This file is copied next to the FIL stand-in and into MLflow models, so it imports nothing of DMLS.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import treelite
from numpy.typing import ArrayLike, NDArray
from treelite.core import _LIB, _check_call
from treelite.gtil.gtil import GTILConfig

CHECKPOINT_FILE = "checkpoint.tl"

_CLASSIFIERS = (0, 2)
"""Treelite's codes for models of two classes and of several."""


def load_model(folder: Path, *, threads: int = -1) -> Callable[[ArrayLike], NDArray[np.float32]]:
    """Return a function that predicts rows (n_rows, n_features) with the checkpoint in a folder.

    It returns probabilities of shape (n_rows, n_classes), or values of shape (n_rows,).
    """
    model = treelite.Model.deserialize(folder / CHECKPOINT_FILE)
    predict = nvforest_predictor(model) or partial(predict_float32, model, threads=threads)
    return lambda rows: as_served(model, predict(rows))


def is_classifier(model: treelite.Model) -> bool:
    """Return whether a model returns probabilities rather than values."""
    return int(model.get_header_accessor().get_field("task_type")[0]) in _CLASSIFIERS


def as_served(model: treelite.Model, outputs: NDArray[Any]) -> NDArray[np.float32]:
    """Return outputs, (n_rows, n_outputs), in the shape in which they are served."""
    if outputs.shape[1] == 1:
        outputs = np.concatenate([1 - outputs, outputs], axis=1) if is_classifier(model) else outputs[:, 0]
    return outputs.astype(np.float32)


def predict_float32(model: treelite.Model, rows: ArrayLike, *, threads: int = -1) -> NDArray[np.float32]:
    """Predict ``rows`` (n_rows, n_features) in float32; ``threads``: -1 is all.

    The result has the shape (n_rows, n_outputs): a class each for several classes, otherwise 1. Raise
    ``ValueError`` if the model has another number of features.
    """
    return _predict(model, np.ascontiguousarray(rows, dtype=np.float32), threads)


def predict_float64(model: treelite.Model, rows: ArrayLike, *, threads: int = -1) -> NDArray[np.float64]:
    """Predict like ``predict_float32``, but add the trees in float64: the reference for rounding errors."""
    return _predict(model, np.ascontiguousarray(rows, dtype=np.float64), threads)


def nvforest_predictor(model: treelite.Model) -> Callable[[ArrayLike], NDArray[np.float32]] | None:
    """Return a function that predicts rows with nvForest on the CPU; None: it is not installed, or fails.

    A forest's predictions are those of ``predict_float32`` bit for bit; boosted classifiers differ in the
    last bits. A category must be a whole number or NaN, as the encoder writes it: an infinite one, or a
    fraction between -1 and 0, goes to another branch than in Treelite.
    """
    try:
        library = import_module("nvforest")
        with warnings.catch_warnings(action="ignore"):  # its Treelite is of another release
            forest = library.load_from_treelite_model(model, device="cpu", precision="single")
    except (ImportError, OSError, RuntimeError, treelite.TreeliteError):
        return None
    predict = forest.predict_proba if hasattr(forest, "predict_proba") else forest.predict

    def predict_rows(rows: ArrayLike) -> NDArray[np.float32]:
        matrix = _checked(model, np.ascontiguousarray(rows, dtype=np.float32))
        predictions: NDArray[np.float32] = np.asarray(predict(matrix), np.float32)
        return predictions.reshape(len(matrix), -1)

    return predict_rows


def _checked(model: treelite.Model, rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows; raise ``ValueError`` if the model has another number of features."""
    if rows.ndim != 2 or rows.shape[1] != model.num_feature:
        raise ValueError(f"the model has {model.num_feature} features, but the rows have shape {rows.shape}")
    return rows


def _predict(model: treelite.Model, rows: NDArray[Any], threads: int) -> NDArray[Any]:
    """Predict in the precision of ``rows``, contiguous float32 or float64."""
    _checked(model, rows)
    config = GTILConfig("default", nthread=threads)
    shape, n_dims = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint64()
    n_rows = ctypes.c_uint64(len(rows))
    _check_call(
        _LIB.TreeliteGTILGetOutputShape(
            model.handle, n_rows, config.handle, ctypes.byref(shape), ctypes.byref(n_dims)
        )
    )
    outputs = np.zeros([shape[i] for i in range(n_dims.value)], rows.dtype)
    _check_call(
        _LIB.TreeliteGTILPredict(
            model.handle,
            rows.ctypes.data_as(ctypes.c_void_p),
            rows.dtype.name.encode(),
            n_rows,
            outputs.ctypes.data_as(ctypes.c_void_p),
            config.handle,
        )
    )
    return outputs.reshape(len(rows), int(np.prod(outputs.shape[1:])))
