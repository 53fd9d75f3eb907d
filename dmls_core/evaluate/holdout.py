"""All that is said about a model by the rows that the search never saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.metrics import compute, metrics_of, scorer
from dmls_core.spec.definitions import Task


@dataclass(frozen=True, slots=True)
class HoldoutScores:
    """Scores on the holdout.

    Attributes:
        score: the metric that the search was for.
        metrics: each metric of the task that is defined for these rows, by name.
        confusion: rows are true classes, columns predicted ones; ``None`` for a regression.
        residuals: predicted minus true value at the quantiles 0, 5, 25, 50, 75, 95 and 100 %; ``None`` for
            a classification.
    """

    score: float
    metrics: dict[str, float]
    confusion: list[list[int]] | None = None
    residuals: list[float] | None = None


QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def score_holdout(task: Task, metric: str, truth: NDArray[Any], prediction: NDArray[Any]) -> HoldoutScores:
    """Score a prediction by every metric of the task.

    Args:
        task: what was predicted.
        metric: what the search was for.
        truth: (n_rows,) class codes or values.
        prediction: (n_rows, n_classes) probabilities or (n_rows,) values.

    Raises:
        DataError: ``metric`` is not defined for these rows.
    """
    score = scorer(metric)(truth, prediction)
    found = {name: compute(name, truth, prediction) for name in metrics_of(task)}
    defined = {name: value for name, value in found.items() if np.isfinite(value)}
    if task == "regression":
        residuals = np.quantile(np.asarray(prediction, dtype=np.float64) - truth, QUANTILES)
        return HoldoutScores(score, defined, residuals=residuals.tolist())
    classes = prediction.shape[1]
    pairs = truth * classes + prediction.argmax(axis=1)
    confusion = np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    return HoldoutScores(score, defined, confusion=confusion.tolist())
