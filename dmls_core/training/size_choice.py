"""Choose the smallest of a model's nested sizes that loses nothing measurable against the whole model.

A size loses nothing measurable if its loss, with 95 % confidence, is at most one standard error of the whole
model's score: another sample of as many rows changes the score by more. The error of the loss is that of the
paired difference, by the bootstrap (Efron and Tibshirani, "An introduction to the bootstrap", 1993), so the
rule is stricter than the rule of one standard error (Breiman and others, "Classification and regression
trees", 1984), which ignores that error. A classifier must pass it for the mean squared error of its
probabilities (Brier, 1950) as well: few trees can keep the accuracy and still give coarse probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.metrics import compute

_MARGIN = 1.0
"""Largest loss, in standard errors of the whole model's score."""

_ONE_SIDED = 1.645
"""Standard errors up to a one-sided 95 % bound."""

_RESAMPLES = 100
_RESAMPLED_ROWS = 2_000
"""Maximum rows of a resample; with more rows, errors are scaled by the square root of the share."""


@dataclass(frozen=True, slots=True)
class NestedSizes:
    """Predictions of one model at several sizes, for rows that its trees have not seen.

    Attributes:
        trees: ascending, the last is the whole model's.
        depths: maximum depths, ascending, the last is the whole model's; a single one for boosted trees.
        nodes: (n_trees, n_depths), the cost of each size.
        predictions: (n_trees, n_depths, n_rows, n_outputs) float32: probabilities, or one value.
        truth: (n_rows,) class codes or values.
        weights: (n_rows,) weights of the rows; None if all are equal.
    """

    trees: tuple[int, ...]
    depths: tuple[int, ...]
    nodes: NDArray[np.int64]
    predictions: NDArray[np.float32]
    truth: NDArray[Any]
    weights: NDArray[np.float64] | None = None


def choose_size(
    sizes: NestedSizes, metric: str, *, sign: float, classifier: bool, seed: int
) -> tuple[int, int]:
    """Return the positions of the number of trees and of the depth with the fewest nodes that lose nothing.

    Without such a size they are the whole model's. ``sign`` is 1 if a higher score is better, otherwise -1.
    The walk assumes that fewer trees need no smaller depth than more trees do.
    """
    chosen = len(sizes.trees) - 1, len(sizes.depths) - 1
    loses_nothing = _test(sizes, metric, sign=sign, classifier=classifier, seed=seed)
    depth = 0
    for trees in reversed(range(len(sizes.trees))):
        while depth < len(sizes.depths) and not loses_nothing(sizes.predictions[trees, depth]):
            depth += 1
        if depth == len(sizes.depths):
            break
        if sizes.nodes[trees, depth] < sizes.nodes[chosen]:
            chosen = trees, depth
    return chosen


def _test(
    sizes: NestedSizes, metric: str, *, sign: float, classifier: bool, seed: int
) -> Callable[[NDArray[np.float32]], bool]:
    """Return the test of a size's predictions."""
    truth, weights = sizes.truth, sizes.weights
    full = _answers(sizes.predictions[-1, -1], classifier=classifier)
    drawn = min(len(truth), _RESAMPLED_ROWS)
    picks = np.random.default_rng(seed).integers(0, len(truth), (_RESAMPLES, drawn))
    scale = float(np.sqrt(drawn / len(truth)))

    def scores(predictions: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.array(
            [compute(metric, truth[pick], predictions[pick], _picked(weights, pick)) for pick in picks]
        )

    score, resampled = compute(metric, truth, full, weights), scores(full)
    if not np.isfinite(score):
        return lambda _: False
    margin = _MARGIN * scale * float(np.nanstd(resampled))
    # Weighted errors have the mean of the weighted rows, and its standard error.
    factor = 1.0 if weights is None else weights / weights.mean()
    errors = _squared_errors(truth, full) * factor if classifier else np.zeros(0)

    def loses_nothing(predictions: NDArray[np.float32]) -> bool:
        answers = _answers(predictions, classifier=classifier)
        if classifier:
            worse = _squared_errors(truth, answers) * factor - errors
            if np.sqrt(len(truth)) * worse.mean() + _ONE_SIDED * worse.std() > _MARGIN * errors.std():
                return False
        loss = sign * (score - compute(metric, truth, answers, weights))
        # Most sizes fail here, where the test is cheap. An undefined score is a failure.
        if not loss <= margin:
            return False
        return bool(loss + _ONE_SIDED * scale * np.nanstd(scores(answers) - resampled) <= margin)

    return loses_nothing


def _picked(weights: NDArray[np.float64] | None, rows: NDArray[Any]) -> NDArray[np.float64] | None:
    return None if weights is None else weights[rows]


def _answers(predictions: NDArray[np.float32], *, classifier: bool) -> NDArray[np.float32]:
    return predictions if classifier else predictions[:, 0]


def _squared_errors(truth: NDArray[Any], probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the squared error of each row's probabilities: (n_rows,)."""
    squares = np.square(probabilities, dtype=np.float64).sum(axis=1)
    true_probabilities = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    errors: NDArray[np.float64] = squares - 2 * true_probabilities + 1
    return errors
