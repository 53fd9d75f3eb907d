"""Choose the weights of an ensemble by greedy selection with replacement.

From the first model on, each step adds the model that makes the mean of all chosen ones best on rows that no
model has seen; the weights are those of the best step (Caruana and others, "Ensemble selection from libraries
of models", ICML 2004). These rows then overrate the ensemble: with enough candidates, some mean is always
better by chance. Cross-fitting says whether the choice gains anything: the weights of either half of the rows
predict the other half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.boosting.learning_curve import TIE_BREAK, loss_share
from dmls_core.search.task import Score

_STEPS = 20
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

    def take(self, rows: NDArray[Any]) -> OutOfSample:
        """Return some of the rows, by position."""
        weights = None if self.weights is None else self.weights[rows]
        return OutOfSample(self.margins[:, rows], self.costs, self.truth[rows], weights)

    def mean(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the margins of an ensemble with a weight for each model."""
        means: NDArray[np.float64] = np.tensordot(weights, self.margins.astype(np.float64), axes=1)
        return means


def select_weights(
    candidates: OutOfSample,
    from_margins: Callable[[NDArray[Any]], NDArray[Any]],
    score: Score,
    *,
    sign: float,
    limit: float,
) -> NDArray[np.float64]:
    """Return the weights, (n_models,) with the sum 1, of the best ensemble that contains the first model.

    The ``costs`` of the models with a weight add up to ``limit`` at most. ``sign`` is 1 if a higher score is
    better, otherwise -1. Equal scores are ranked by the log loss.
    """

    def rank(margins: NDArray[Any]) -> float:
        prediction = from_margins(margins)
        value = score(candidates.truth, prediction, candidates.weights)
        return sign * value - TIE_BREAK * loss_share(candidates.truth, prediction, candidates.weights)

    counts = np.zeros(len(candidates.margins), np.int64)
    counts[0] = 1
    total = candidates.margins[0].astype(np.float64)
    best_rank, best = rank(total), counts.copy()
    for size in range(2, _STEPS + 2):
        room = limit - candidates.costs[counts > 0].sum()
        possible = np.flatnonzero((counts > 0) | (candidates.costs <= room))
        ranks = {int(model): rank((total + candidates.margins[model]) / size) for model in possible}
        added = max(ranks, key=ranks.__getitem__)
        counts[added] += 1
        total += candidates.margins[added]
        if ranks[added] > best_rank:
            best_rank, best = ranks[added], counts.copy()
    weights: NDArray[np.float64] = best / best.sum()
    return weights


def cross_fit(
    candidates: OutOfSample, choose: Callable[[OutOfSample], NDArray[np.float64]], seed: int
) -> NDArray[np.float64]:
    """Return the margins of ensembles whose weights were chosen on other rows, in the order of the rows."""
    half = np.random.default_rng(seed).permutation(len(candidates.truth)) % 2 == 0
    margins = np.zeros(candidates.margins.shape[1:])
    for rows in (half, ~half):
        margins[rows] = candidates.take(rows).mean(choose(candidates.take(~rows)))
    return margins
