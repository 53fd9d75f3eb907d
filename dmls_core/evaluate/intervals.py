"""How far a score on few rows can be trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.metrics import METRICS, compute

CONFIDENCE = 0.95
RESAMPLES = 400
ROWS = 4_000
"""Rows of one resample at most: a metric of more of them is dear and tells no more."""

FEWEST_RESAMPLES = 50
CLASSES = 4_000
"""Classes of all resamples together, above ``FEWEST_RESAMPLES``, where each is a metric of its own."""


def bootstrap_interval(
    metric: str, truth: NDArray[Any], prediction: NDArray[Any], *, seed: int
) -> tuple[float, float] | None:
    """Return the interval that holds the score with 95 % confidence, by the percentile bootstrap.

    Rows are drawn with replacement (Efron, "Bootstrap methods: another look at the jackknife", 1979). Of more
    than ``ROWS`` rows only so many are drawn at a time, and the spread is scaled by the root of the share
    (the m out of n bootstrap; Bickel, Götze and van Zwet, 1997).

    Args:
        metric: name of the metric.
        truth: (n_rows,) class codes or values.
        prediction: (n_rows, n_classes) probabilities or (n_rows,) values.
        seed: the same seed gives the same interval.

    Returns:
        Its ends; ``None`` where the metric is not defined for most of the resamples.
    """
    generator = np.random.default_rng(seed)
    rows, drawn = len(truth), min(len(truth), ROWS)
    resamples = RESAMPLES
    if METRICS[metric].per_class:
        resamples = max(FEWEST_RESAMPLES, min(RESAMPLES, CLASSES // prediction.shape[1]))
    scores = np.array(
        [
            compute(metric, truth[picked], prediction[picked])
            for picked in (generator.integers(0, rows, drawn) for _ in range(resamples))
        ]
    )
    scores = scores[np.isfinite(scores)]
    if len(scores) < resamples / 2:
        return None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(scores, [tail, 1 - tail])
    if drawn < rows:
        score, scale = compute(metric, truth, prediction), np.sqrt(drawn / rows)
        low, high = score + (low - score) * scale, score + (high - score) * scale
    return float(low), float(high)
