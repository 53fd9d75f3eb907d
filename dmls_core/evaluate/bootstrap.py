"""Confidence intervals of a score, and of the difference between two models, by the bootstrap.

Rows are drawn with replacement (percentile bootstrap; Efron and Tibshirani, "An introduction to the
bootstrap", 1993). If there are many rows, each resample has fewer rows than the data and the spread is scaled
by the square root of the share (m out of n bootstrap; Bickel, Götze and van Zwet, 1997), which
``scipy.stats.bootstrap`` does not offer: each of its resamples would be as large as the holdout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.metrics import METRICS, compute

CONFIDENCE = 0.95

MIN_RESAMPLES = 50

SCORE_RESAMPLES = 400
SCORE_ROWS = 4_000
"""Rows of one resample of a score at most."""

SCORE_CLASSES = 4_000
"""Classes of all resamples together, above ``MIN_RESAMPLES``, for a metric computed class by class."""

PAIRED_RESAMPLES = 200
PAIRED_ROWS = 2_000
"""Rows of one paired resample at most."""


def score_interval(
    metric: str, truth: NDArray[Any], prediction: NDArray[Any], *, seed: int
) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a score; ``None`` if most resamples leave it undefined.

    ``truth``: (n_rows,) class codes or values. ``prediction``: (n_rows, n_classes) probabilities or (n_rows,)
    values.
    """
    generator = np.random.default_rng(seed)
    rows, drawn = len(truth), min(len(truth), SCORE_ROWS)
    resamples = SCORE_RESAMPLES
    if METRICS[metric].per_class:
        resamples = max(MIN_RESAMPLES, min(SCORE_RESAMPLES, SCORE_CLASSES // prediction.shape[1]))
    scores = np.array(
        [
            compute(metric, truth[picked], prediction[picked])
            for picked in (generator.integers(0, rows, drawn) for _ in range(resamples))
        ]
    )
    scores = scores[np.isfinite(scores)]
    if len(scores) < resamples / 2:
        return None
    low, high = _percentiles(scores)
    if drawn < rows:
        score, scale = compute(metric, truth, prediction), np.sqrt(drawn / rows)
        low, high = score + (low - score) * scale, score + (high - score) * scale
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class PairedBootstrap:
    """Distribution of an improvement; above 0 the challenger is better, whatever the metric's direction.

    ``interval`` has a confidence of 95 %; ``probability`` is the share of the resamples in which the
    improvement exceeds the margin.
    """

    interval: tuple[float, float]
    probability: float


def paired_bootstrap(
    metric: str,
    truth: NDArray[Any],
    champion: NDArray[Any],
    challenger: NDArray[Any],
    *,
    sign: float,
    margin: float,
    seed: int,
) -> PairedBootstrap | None:
    """Resample the same rows for both models; return the distribution of the improvement.

    The result is ``None`` if most resamples leave the metric undefined. The interval of ``max_error``, which
    depends on single rows, is only a rough indication. ``sign`` is 1 if higher is better, otherwise -1;
    shapes as in ``score_interval``.
    """
    generator = np.random.default_rng(seed)
    rows, drawn = len(truth), min(len(truth), PAIRED_ROWS)
    classes = champion.shape[1] if champion.ndim > 1 else 1
    resamples = PAIRED_RESAMPLES
    if METRICS[metric].per_class and classes > 2:
        resamples = max(MIN_RESAMPLES, PAIRED_RESAMPLES // classes)
    found = np.empty(resamples)
    for number in range(resamples):
        picked = generator.integers(0, rows, drawn)
        own, others = (
            compute(metric, truth[picked], prediction[picked]) for prediction in (challenger, champion)
        )
        found[number] = sign * (own - others)
    found = found[np.isfinite(found)]
    if len(found) < resamples / 2:
        return None
    if drawn < rows:
        whole = sign * (compute(metric, truth, challenger) - compute(metric, truth, champion))
        found = whole + (found - whole) * np.sqrt(drawn / rows)
    low, high = _percentiles(found)
    return PairedBootstrap((float(low), float(high)), float((found > margin).mean()))


def _percentiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    tail = (1 - CONFIDENCE) / 2
    ends: NDArray[np.float64] = np.quantile(values, [tail, 1 - tail])
    return ends
