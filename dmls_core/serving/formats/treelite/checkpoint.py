"""Treelite checkpoints: exact in float32, and checked against the model they were made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import treelite
from numpy.typing import NDArray

from dmls_core.errors import ServingError
from dmls_core.serving.formats.tolerance import model_tolerance
from dmls_core.serving.formats.treelite.gtil import (
    as_served,
    is_classifier,
    nvforest_predictor,
    predict_float32,
    predict_float64,
)

LESS_OR_EQUAL = 3
"""Treelite's code for the test ``value <= threshold``."""

_CATEGORICAL = 2
"""Treelite's code for a node that tests whether a category is in a set; it has no threshold."""

LESS = 2
"""Treelite's code for the test ``value < threshold``."""


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
        inner = (tree.get_field("cleft") >= 0) & (tree.get_field("node_type") != _CATEGORICAL)
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
    return as_served(model, predict_float32(model, features, threads=threads))


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
    return as_served(model, predict_rows(features))
