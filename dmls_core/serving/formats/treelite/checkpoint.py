"""Treelite checkpoints: exact in float32, and checked against the model they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import treelite
from numpy.typing import NDArray

from dmls_core.errors import ServingError
from dmls_core.serving.formats.tolerance import model_tolerance, rows_that_differ
from dmls_core.serving.formats.treelite.gtil import (
    fastest_predictor,
    nvforest_predictor,
    predict_float32,
    predict_float64,
)

FloatArray = NDArray[np.floating[Any]]

LESS_OR_EQUAL = 3
"""Treelite's code for the test ``value <= threshold``."""

CATEGORICAL = 2
"""Treelite's code for a node that tests whether a category is in a set; it has no threshold."""

LESS = 2
"""Treelite's code for the test ``value < threshold``."""

CLASSIFIERS = (0, 2)
"""Treelite's codes for models of two classes and of several."""


def snap_thresholds(model: treelite.Model) -> treelite.Model:
    """Replace every float64 threshold by the float32 that splits float32 values in the same way, in place.

    The FIL backend computes in single precision, where a threshold rounded to the nearest float32 may end up
    on the other side of a value. For a float32 ``x``, exactly, ``x <= t`` is ``x <= floor32(t)``, and
    ``x < t`` is ``x < ceil32(t)``.
    """
    for number in range(model.num_tree):
        tree = model.get_tree_accessor(number)
        thresholds = tree.get_field("threshold")
        if thresholds.dtype != np.float64:
            continue
        tests = tree.get_field("cmp")
        inner = (tree.get_field("cleft") >= 0) & (tree.get_field("node_type") != CATEGORICAL)
        snapped = thresholds.copy()
        down, up = inner & (tests == LESS_OR_EQUAL), inner & (tests == LESS)
        if (inner & ~down & ~up).any():
            raise ServingError(f"tree {number} has a test that is neither < nor <=")
        snapped[down] = _round_towards(thresholds[down], -np.inf)
        snapped[up] = _round_towards(thresholds[up], np.inf)
        tree.set_field("threshold", snapped)
    return model


def _round_towards(values: NDArray[np.float64], end: float) -> NDArray[np.float64]:
    """Round to float32 towards minus or plus infinity."""
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
    wrong = nearest > values if end < 0 else nearest < values
    nearest[wrong] = np.nextafter(nearest[wrong], np.float32(end))
    return nearest.astype(np.float64)


def export(model: treelite.Model, path: Path) -> treelite.Model:
    """Snap a model's thresholds, write it to ``path``, and return it as a server loads it."""
    snap_thresholds(model).serialize(path)
    del model  # otherwise a large forest is in memory twice
    return load(path)


def load(path: Path) -> treelite.Model:
    """Read a checkpoint.

    Raises:
        ServingError: it is not a Treelite checkpoint, or this release cannot read it.
    """
    try:
        return treelite.Model.deserialize(path)
    except treelite.TreeliteError as error:
        raise ServingError(f"{path.name} is not a Treelite checkpoint: {error}") from error


def predict(
    model: treelite.Model, features: NDArray[np.float32], *, threads: int = -1
) -> NDArray[np.float32]:
    """Predict as the FIL backend does on a CPU, bit for bit (``threads``: -1 is all).

    ``features``: (n_rows, n_features). The result is float32: probabilities of shape (n_rows, n_classes), two
    columns for two classes, or values of shape (n_rows,).
    """
    found = predict_float32(model, features, threads=threads)
    return _as_served(found, len(features), classifier=is_classifier(model))


def tolerance(model: treelite.Model, features: NDArray[np.float32]) -> float:
    """Return the tolerance of a model, whose golden rows ``features`` (n_rows, n_features) are."""
    both = (predict(model, features) for predict in (predict_float32, predict_float64))
    return model_tolerance(model.num_tree, *both, classification=is_classifier(model))


def predict_as_fil(path: Path, features: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Predict in single precision with nvForest, FIL's code on a GPU; ``None``: it is not installed.

    Shapes as in ``predict``.
    """
    predict_rows = nvforest_predictor(model := load(path))
    if predict_rows is None:
        return None
    return _as_served(predict_rows(features), len(features), classifier=is_classifier(model))


def predict_file(path: Path, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Predict with the checkpoint ``path``, by nvForest if it can be used; shapes as in ``predict``."""
    model = load(path)
    return _as_served(fastest_predictor(model)(features), len(features), classifier=is_classifier(model))


def _as_served(found: NDArray[Any], n_rows: int, *, classifier: bool) -> NDArray[np.float32]:
    """Return answers in the shape in which they are served."""
    found = found.reshape(n_rows, -1)
    if found.shape[1] == 1:
        found = np.concatenate([1 - found, found], axis=1) if classifier else found[:, 0]
    return found.astype(np.float32)


def is_classifier(model: treelite.Model) -> bool:
    """Return whether a model returns probabilities rather than values."""
    return int(model.get_header_accessor().get_field("task_type")[0]) in CLASSIFIERS


def check_parity(expected: FloatArray, served: FloatArray, tolerance: float | None = None) -> None:
    """Compare the engine's predictions with the checkpoint's for the same rows, both of the same shape.

    ``tolerance`` is that of the model, by default that of a few trees. Where the probabilities of two classes
    are within it, rounding decides which is higher, so either class is right.

    Raises:
        ServingError: they differ; the message names the first row.
    """
    if expected.shape != served.shape:
        raise ServingError(f"the checkpoint returns shape {served.shape}, the model {expected.shape}")
    both = (answers.reshape(len(answers), -1) for answers in (expected.astype(np.float32), served))
    bad = rows_that_differ(*both, classification=expected.ndim > 1, tolerance=tolerance, ties=True)
    if len(bad):
        row = int(bad[0])
        raise ServingError(
            f"the checkpoint differs from the model in {len(bad)} of {len(expected)} rows; "
            f"row {row}: expected {expected[row].tolist()}, got {served[row].tolist()}"
        )
