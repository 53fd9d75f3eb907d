"""Features that predict the target all by themselves: often they are the target in disguise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.spec.definitions import Task

FEATURES = 25
"""Features looked at: what gives the target away is among those that the model finds the most important."""

ROWS = 5_000
"""Rows looked at, at most."""

FEWEST = 50
"""Rows below which nothing can be said."""

FOLDS = 5
LEAVES = 16

PERFECT = 0.005
"""Share of the error left below which a feature is a suspect whatever the others can do."""

SMALL = {"classification": 0.05, "regression": 0.02}
"""Share of the error left below which a feature is a suspect if it is far ahead of the others."""

AHEAD = 4.0
"""How many times the error of each other feature must be. In measurements of nature several features tell
about the same (iris: two of four come within a few percent of a perfect answer); a leak stands out."""


def suspects(
    task: Task, features: NDArray[np.float32], target: NDArray[Any], columns: Sequence[int], *, seed: int
) -> list[int]:
    """Return the columns that predict the target alone, in their order.

    Each column gets a small decision tree, cross-validated. What it leaves of the error of not knowing the
    column at all (balanced for classes, squared for values) decides.

    Args:
        task: what is predicted.
        features: (n_rows, n_features): the training rows.
        target: (n_rows,) class codes or values.
        columns: positions of the features to look at, the most important first.
        seed: the same seed looks at the same rows.
    """
    if len(target) < FEWEST:
        return []
    picked = np.random.default_rng(seed).permutation(len(target))[:ROWS]
    known = target[picked]
    left = {column: _left(task, features[picked, column], known) for column in columns[:FEATURES]}
    return [
        column
        for column, error in left.items()
        if error <= PERFECT or (error <= SMALL[task] and AHEAD * error <= _least_of_others(left, column))
    ]


def _least_of_others(left: Mapping[int, float], column: int) -> float:
    return min((error for other, error in left.items() if other != column), default=1.0)


def _left(task: Task, values: NDArray[np.float32], target: NDArray[Any]) -> float:
    """Return the error that a tree on one column leaves: 0 is a perfect answer, 1 no better than none."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    column, folds = values[:, None], np.arange(len(target)) % FOLDS
    found = np.empty(len(target))
    for fold in range(FOLDS):
        held = folds == fold
        tree = (
            DecisionTreeClassifier(max_leaf_nodes=LEAVES, class_weight="balanced", random_state=0)
            if task == "classification"
            else DecisionTreeRegressor(max_leaf_nodes=LEAVES, random_state=0)
        )
        found[held] = tree.fit(column[~held], target[~held]).predict(column[held])
    if task == "regression":
        spread = float(np.var(target))
        return float(np.mean((found - target) ** 2)) / spread if spread > 0 else 1.0
    codes = np.unique(target)
    missed = np.mean([(found[target == code] != code).mean() for code in codes])
    return float(missed) / (1 - 1 / len(codes)) if len(codes) > 1 else 1.0
