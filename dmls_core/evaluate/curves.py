"""The points of the charts that judge a model on its holdout."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

CLASSES = 10
"""Classes up to which each has a curve of its own."""

POOLED = 1_000_000
"""Probabilities at most in the curve of all classes pooled; of more rows some are taken, evenly."""

POINTS = 200
"""Points of one curve at most."""

SCATTER = 1_500
"""Rows shown one by one at most."""

BINS = 10
"""Bins of a calibration."""

BARS = 40
"""Bars of a histogram."""


class Curve(TypedDict):
    """A line of a chart."""

    code: int
    x: list[float]
    y: list[float]
    area: float


class Calibration(TypedDict):
    """Mean prediction, what came true and how many rows, bin by bin."""

    predicted: list[float]
    observed: list[float]
    rows: list[int]


def class_curves(truth: NDArray[Any], prediction: NDArray[Any]) -> tuple[list[Curve], list[Curve]]:
    """Return the ROC curves and the precision-recall curves, each class against the rest.

    Of two classes there is the ROC curve of the second alone, since the first's is its mirror. Of more than
    ``CLASSES`` there is none but the ROC of all classes pooled, with the code -1.

    Args:
        truth: (n_rows,) class codes.
        prediction: (n_rows, n_classes) probabilities.
    """
    from sklearn import metrics

    classes = prediction.shape[1]
    if classes > CLASSES:
        rows = np.linspace(0, len(truth) - 1, min(len(truth), POOLED // classes)).astype(int)
        pooled = (truth[rows, None] == np.arange(classes)).ravel()
        rate = metrics.roc_curve(pooled, prediction[rows].ravel())
        return [_curve(-1, rate[0], rate[1], metrics.auc(rate[0], rate[1]))], []
    roc, recalls = [], []
    for code in range(classes):
        member = truth == code
        if member.all() or not member.any():
            continue
        if classes > 2 or code == 1:
            false, true, _ = metrics.roc_curve(member, prediction[:, code])
            roc.append(_curve(code, false, true, metrics.auc(false, true)))
        precision, recall, _ = metrics.precision_recall_curve(member, prediction[:, code])
        area = metrics.average_precision_score(member, prediction[:, code])
        recalls.append(_curve(code, recall[::-1], precision[::-1], area))
    return roc, recalls


def _curve(code: int, x: NDArray[Any], y: NDArray[Any], area: float) -> Curve:
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int))
    return Curve(code=code, x=_rounded(x[kept]), y=_rounded(y[kept]), area=float(area))


def class_calibration(truth: NDArray[Any], prediction: NDArray[Any]) -> Calibration:
    """Compare stated probabilities with what came true, in bins of equal width.

    Of two classes the probability of the second one is judged, of more that of the class which is answered.
    """
    if prediction.shape[1] == 2:
        stated, right = prediction[:, 1], truth == 1
    else:
        stated, right = prediction.max(axis=1), prediction.argmax(axis=1) == truth
    return _calibration(stated, right, np.minimum((stated * BINS).astype(int), BINS - 1))


def value_calibration(truth: NDArray[Any], prediction: NDArray[Any]) -> Calibration:
    """Compare mean predicted and mean true values, in bins of about as many rows each."""
    order = np.argsort(np.argsort(prediction, kind="stable"), kind="stable")
    return _calibration(prediction, truth, order * min(BINS, len(truth)) // len(truth))


def _calibration(stated: NDArray[Any], came: NDArray[Any], bins: NDArray[Any]) -> Calibration:
    rows = np.bincount(bins)
    held = rows > 0
    return Calibration(
        predicted=_rounded(np.bincount(bins, stated)[held] / rows[held]),
        observed=_rounded(np.bincount(bins, came)[held] / rows[held]),
        rows=rows[held].tolist(),
    )


def scatter(truth: NDArray[Any], prediction: NDArray[Any], *, seed: int) -> dict[str, list[float]]:
    """Return true and predicted values of ``SCATTER`` rows at most."""
    picked = np.arange(len(truth))
    if len(picked) > SCATTER:
        picked = np.sort(np.random.default_rng(seed).choice(len(truth), SCATTER, replace=False))
    return {"truth": _rounded(truth[picked]), "predicted": _rounded(prediction[picked])}


def histogram(values: NDArray[Any]) -> dict[str, list[float]]:
    """Return a histogram of all values: middles of the bars, their width, and rows."""
    counts, edges = np.histogram(values, bins=int(np.clip(np.sqrt(len(values)), 5, BARS)))
    return {
        "middle": _rounded((edges[1:] + edges[:-1]) / 2),
        "width": _rounded(np.diff(edges)),
        "rows": counts.tolist(),
    }


def _rounded(values: NDArray[Any]) -> list[float]:
    """Return the values with six digits: more would only make the page larger."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64).tolist()]
