"""Find features that predict the target on their own.

A small decision tree on one feature is cross-validated. That takes milliseconds per tree and feature, so
it is done only where a lower bound of the tree's error, computed for all features at once, leaves it open
whether the feature leaks. The answers are those of the trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.spec.definitions import Task

FEATURES = 25
"""Features that are checked, the most important ones: a leaking feature is important to the model."""

ROWS = 5_000

MIN_ROWS = 50

FOLDS = 5
LEAVES = 16

PERFECT_ERROR = 0.005
"""Share of the error below which a feature leaks, whatever the other features achieve."""

SMALL_ERROR: Mapping[Task, float] = {"classification": 0.05, "regression": 0.02}
"""Share of the error below which a feature leaks if all others are much worse."""

RATIO = 4.0
"""How many times larger the error of every other feature must then be: in natural data several features carry
about the same information (in iris two of four come close to a perfect prediction), but a leak stands out."""

_BIN_ROWS = (4, 8, 16)
"""Held-out rows per bin of the lower bound. Each size gives one, and the largest counts."""

_ROUNDING = 1e-9


def leaking_features(
    task: Task, features: NDArray[np.float32], target: NDArray[Any], columns: Sequence[int], *, seed: int
) -> list[int]:
    """Return the columns that predict the target on their own, in their order.

    For each column a small decision tree is cross-validated. Its error relative to the error without any
    feature (balanced for classes, squared for values) decides. ``features``: (n_rows, n_features) training
    rows. ``columns``: positions to check, most important first.
    """
    columns = list(columns[:FEATURES])
    if len(target) < MIN_ROWS or not columns:
        return []
    picked = np.random.default_rng(seed).permutation(len(target))[:ROWS]
    values, picked_target = features[picked[:, None], columns], target[picked]
    bounds = least_errors(task, values, picked_target) - _ROUNDING
    if (bounds > SMALL_ERROR[task]).all():
        return []
    # A feature with a larger error does not leak, nor is it too similar to one that does.
    open_ = np.flatnonzero(bounds <= RATIO * SMALL_ERROR[task]).tolist()
    errors = {columns[at]: relative_error(task, values[:, at], picked_target) for at in open_}
    return [
        column
        for column, error in errors.items()
        if error <= PERFECT_ERROR
        or (error <= SMALL_ERROR[task] and RATIO * error <= _least_other(errors, column))
    ]


def _least_other(errors: Mapping[int, float], column: int) -> float:
    return min((error for other, error in errors.items() if other != column), default=1.0)


def relative_error(task: Task, values: NDArray[np.float32], target: NDArray[Any]) -> float:
    """Return the error of a tree on one column, (n_rows,): 0 for a perfect prediction, 1 for none."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    column, folds = values[:, None], np.arange(len(target)) % FOLDS
    predictions = np.empty(len(target))
    for fold in range(FOLDS):
        held = folds == fold
        tree = (
            DecisionTreeClassifier(max_leaf_nodes=LEAVES, class_weight="balanced", random_state=0)
            if task == "classification"
            else DecisionTreeRegressor(max_leaf_nodes=LEAVES, random_state=0)
        )
        predictions[held] = tree.fit(column[~held], target[~held]).predict(column[held])
    if task == "regression":
        variance = float(np.var(target))
        return float(np.mean((predictions - target) ** 2)) / variance if variance > 0 else 1.0
    codes = np.unique(target)
    missed = np.mean([(predictions[target == code] != code).mean() for code in codes])
    return float(missed) / (1 - 1 / len(codes)) if len(codes) > 1 else 1.0


def least_errors(task: Task, values: NDArray[np.float32], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return a lower bound of ``relative_error`` for each column of ``values``, (n_rows, n_columns).

    A fold's held-out rows, in the order of the column, form bins. A tree predicts one value for all rows of a
    bin, except in as many bins as it has cuts. So its error is at least the sum of what the best constant
    leaves of each bin, without the bins in which that is the most.
    """
    rows = len(target) // FOLDS
    held = values[: rows * FOLDS].reshape(rows, FOLDS, -1).transpose(2, 1, 0)
    order = np.argsort(held, axis=2)  # missing values last
    # They are all in one leaf, which may be any: one cut more.
    cuts = LEAVES - 1 + bool(np.isnan(held).any())
    costs: NDArray[np.float64] | None = None
    if task == "regression":
        targets: NDArray[Any] = target - np.mean(target, dtype=np.float64)
        scale = float(np.sum(targets**2))
    else:
        codes, targets, sizes = np.unique(target, return_inverse=True, return_counts=True)
        scale = len(codes) - 1.0
        costs = 1 / sizes
    if not scale > 0:
        return np.ones(values.shape[1])
    ordered = targets[: rows * FOLDS].reshape(rows, FOLDS).T[np.arange(FOLDS)[None, :, None], order]
    bounds = np.zeros(values.shape[1])
    for size in _BIN_ROWS:
        bins = ordered[:, :, : rows // size * size].reshape(*ordered.shape[:2], -1, size)
        if bins.shape[2] > cuts:
            left = _left_over(bins, costs)
            bounds = np.maximum(bounds, np.partition(left, -cuts)[:, :, :-cuts].sum(axis=(1, 2)) / scale)
    return bounds


def _left_over(bins: NDArray[Any], costs: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the error of the best constant in each bin: of classes with ``costs``, or values."""
    if costs is None:
        return np.asarray(((bins - bins.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1))
    each = costs[bins]
    same = (bins[..., :, None] == bins[..., None, :]).sum(axis=-1)
    return np.asarray(each.sum(axis=-1) - (same * each).max(axis=-1))
