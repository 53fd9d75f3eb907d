"""The catalogue's metrics, computed by scikit-learn's functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from dmls_core.errors import DataError, ValidationIssue

Metric = Callable[[NDArray[Any], NDArray[Any]], float]
"""(truth, prediction) -> score. Truth: (n_rows,) codes or values. Prediction: as ``Fitted.predict``."""


def _of_class(function: Callable[..., float], **options: str | int) -> Metric:
    """Make a metric of the predicted classes."""
    return lambda truth, probabilities: function(truth, probabilities.argmax(axis=1), **options)


def _per_class(function: Callable[..., float]) -> Metric:
    """Make a metric of each class against the rest; two classes are judged by the second one.

    Classes that no row of ``truth`` (or every row) belongs to are left out of the mean.
    """

    def mean(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
        classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
        member = {code: truth == code for code in classes}
        found = [
            function(rows, probabilities[:, code])
            for code, rows in member.items()
            if rows.any() and not rows.all()
        ]
        return float(np.mean(found)) if found else float("nan")

    return mean


def _log_loss(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    # float32 probabilities add up to 1 in float32 only.
    exact = probabilities.astype(np.float64)
    exact /= exact.sum(axis=1, keepdims=True)
    return float(metrics.log_loss(truth, exact, labels=np.arange(exact.shape[1])))


def _balanced_accuracy(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    chosen = probabilities.argmax(axis=1)
    return float(np.mean([(chosen[truth == code] == code).mean() for code in np.unique(truth)]))


def _rank_auc(member: NDArray[np.bool_], score: NDArray[Any]) -> float:
    """Return the area under the ROC curve by the ranks of the scores (Mann and Whitney, 1947); ties share."""
    _, places, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    found = int(member.sum())
    pairs = found * (len(member) - found)
    return float((ranks[member].sum() - found * (found + 1) / 2) / pairs)


# A search computes its metric hundreds of times on a few rows, where scikit-learn's checks of its arguments
# take longer than all else: the two default metrics and the area under the ROC curve do without them.


def _accuracy(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    return float((probabilities.argmax(axis=1) == truth).mean())


def _r2(truth: NDArray[Any], values: NDArray[Any]) -> float:
    if len(truth) < 2:
        return float("nan")
    exact = truth.astype(np.float64)
    missed = float(np.square(exact - values).sum())
    variance = float(np.square(exact - exact.mean()).sum())
    if not variance:
        return 0.0 if missed else 1.0
    return 1.0 - missed / variance


def _of_several(function: Callable[..., float], truth: NDArray[Any], values: NDArray[Any]) -> float:
    return function(truth, values) if len(truth) > 1 else float("nan")


FUNCTIONS: Mapping[str, Metric] = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "f1_macro": _of_class(metrics.f1_score, average="macro", zero_division=0),
    "f1_weighted": _of_class(metrics.f1_score, average="weighted", zero_division=0),
    "precision_macro": _of_class(metrics.precision_score, average="macro", zero_division=0),
    "recall_macro": _of_class(metrics.recall_score, average="macro", zero_division=0),
    "roc_auc": _per_class(_rank_auc),
    "average_precision": _per_class(metrics.average_precision_score),
    "log_loss": _log_loss,
    "matthews_corrcoef": _of_class(metrics.matthews_corrcoef),
    "r2": _r2,
    "rmse": metrics.root_mean_squared_error,
    "mae": metrics.mean_absolute_error,
    "median_ae": metrics.median_absolute_error,
    "mape": metrics.mean_absolute_percentage_error,
    "max_error": metrics.max_error,
    "explained_variance": partial(_of_several, metrics.explained_variance_score),
}
"""Metric -> function; the names are those of ``dmls_core.models.metrics_catalogue``."""

PER_CLASS = frozenset({"roc_auc", "average_precision"})
"""Metrics whose cost grows with the number of classes."""


def compute(name: str, truth: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Compute a metric; NaN where it is not defined for these rows."""
    if not len(truth):
        return float("nan")
    with warnings.catch_warnings():
        # scikit-learn warns of classes that a few rows lack; the log is for what a user can act on.
        warnings.simplefilter("ignore")
        return float(FUNCTIONS[name](truth, prediction))


def scorer(name: str) -> Metric:
    """Return the metric as a search needs it: one that raises ``DataError`` instead of giving NaN."""

    def score(truth: NDArray[Any], prediction: NDArray[Any]) -> float:
        value = compute(name, truth, prediction)
        if not np.isfinite(value):
            raise DataError(
                ValidationIssue(
                    f"{name} is not defined for {len(truth)} held-out row{'s' if len(truth) != 1 else ''}",
                    key="search.metric",
                    hint="add rows, lower [search] folds, or choose another metric",
                )
            )
        return value

    return score
