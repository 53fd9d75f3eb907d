"""What a model's score loses when one feature is shuffled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.metrics import compute

Predict = Callable[[NDArray[np.float32]], NDArray[Any]]
"""(n_rows, n_features) float32 -> what ``Fitted.predict`` returns."""

REPEATS = 5
FEATURES = 25
"""Features that are shuffled at most: those that the model itself calls the most important."""

WALKS = 20_000_000
"""Walks of a row down a tree at most, which bounds the rows: 20 million take a core some seconds."""


def permutation_importances(
    metric: str,
    direction: str,
    features: NDArray[np.float32],
    truth: NDArray[Any],
    predict: Predict,
    columns: Sequence[int],
    *,
    trees: int,
    seed: int,
) -> dict[int, tuple[float, float]]:
    """Shuffle one column after the other and see what the score loses (Breiman, "Random forests", 2001).

    Args:
        metric: name of the metric.
        direction: ``maximize`` or ``minimize``.
        features: (n_rows, n_features) that the model was not fitted on.
        truth: (n_rows,) class codes or values.
        predict: the model.
        columns: positions of the features to shuffle.
        trees: trees of the model: of many, fewer rows are looked at.
        seed: the same seed shuffles the same way.

    Returns:
        For each of ``columns`` mean and standard deviation of the loss over the shuffles: above 0 where the
        model needs the feature. Empty where the metric is not defined for these rows.
    """
    generator = np.random.default_rng(seed)
    most = max(100, WALKS // (max(1, trees) * REPEATS * max(1, len(columns))))
    picked = np.arange(len(truth))
    if len(picked) > most:
        picked = np.sort(generator.choice(len(truth), most, replace=False))
    rows, known = features[picked], truth[picked]
    sign = 1.0 if direction == "maximize" else -1.0
    base = compute(metric, known, predict(rows))
    shuffles = [generator.permutation(len(rows)) for _ in range(REPEATS)]
    # All shuffles of a feature are one call: a call of a forest costs more than a few hundred rows in it.
    stacked = np.tile(rows, (REPEATS, 1))
    found: dict[int, tuple[float, float]] = {}
    for column in columns:
        stacked[:, column] = np.concatenate([rows[shuffle, column] for shuffle in shuffles])
        losses = [
            sign * (base - compute(metric, known, part)) for part in np.split(predict(stacked), REPEATS)
        ]
        stacked[:, column] = np.tile(rows[:, column], REPEATS)
        if np.isfinite(losses).all():
            found[column] = float(np.mean(losses)), float(np.std(losses))
    return found
