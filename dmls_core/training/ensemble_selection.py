"""Choose the weights of an ensemble by greedy selection with replacement.

From the first model on, each step adds the model that makes the mean of all chosen ones best on rows that no
model has seen; the weights are those of the best step (Caruana and others, "Ensemble selection from libraries
of models", ICML 2004).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.learning_curve import TIE_BREAK, loss_share
from dmls_core.search.task import Score

STEPS = 20
"""Models that are added; one may be added again."""


@dataclass(frozen=True, slots=True)
class OutOfSample:
    """Margins of several models for the same rows, which none of them was fitted on.

    Attributes:
        margins: (n_models, n_rows) or (n_models, n_rows, n_classes).
        costs: (n_models,) nodes that the prediction of a row visits.
        truth: (n_rows,) class codes or values.
        weights: (n_rows,) weights of the rows; None if all are equal.
    """

    margins: NDArray[np.float32]
    costs: NDArray[np.float64]
    truth: NDArray[Any]
    weights: NDArray[np.float64] | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The weight of each model, which sum to 1, and the score of the first model and of the ensemble."""

    weights: NDArray[np.float64]
    first: float
    score: float


def select_weights(
    found: OutOfSample,
    from_margins: Callable[[NDArray[Any]], NDArray[Any]],
    score: Score,
    *,
    sign: float,
    limit: float,
) -> Selection:
    """Return the weights of the best ensemble that contains the first model.

    The ``costs`` of the models with a weight add up to ``limit`` at most. ``sign`` is 1 if a higher score is
    better, otherwise -1. Equal scores are ranked by the log loss.
    """

    def rank(margins: NDArray[Any]) -> tuple[float, float]:
        prediction = from_margins(margins)
        value = score(found.truth, prediction, found.weights)
        return sign * value - TIE_BREAK * loss_share(found.truth, prediction, found.weights), value

    counts = np.zeros(len(found.margins), np.int64)
    counts[0] = 1
    total = found.margins[0].astype(np.float64)
    best_rank, first = rank(total)
    best, best_score = counts.copy(), first
    for size in range(2, STEPS + 2):
        room = limit - found.costs[counts > 0].sum()
        possible = np.flatnonzero((counts > 0) | (found.costs <= room))
        ranks = {int(model): rank((total + found.margins[model]) / size) for model in possible}
        added = max(ranks, key=lambda model: ranks[model][0])
        counts[added] += 1
        total += found.margins[added]
        if ranks[added][0] > best_rank:
            (best_rank, best_score), best = ranks[added], counts.copy()
    return Selection(best / best.sum(), first, best_score)
