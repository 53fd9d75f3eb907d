"""Scores, curves and diagnostics of a model on its holdout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.checks import Evidence, baseline_score, find_warnings
from dmls_core.evaluate.comparison import score_interval
from dmls_core.models.metrics import compute, metrics_of, scorer
from dmls_core.spec.definitions import Task
from dmls_core.stored_matrix import Matrix

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
"""Quantiles of the residuals."""

_MAX_CURVES = 10
"""Classes up to which each class has its own curve."""

MAX_POOLED = 1_000_000
"""Probabilities in the pooled curve of all classes at most; more rows are thinned out evenly."""

_MAX_POINTS = 200
"""Points of one curve at most."""

_MAX_SCATTER = 1_500

_BINS = 10
"""Bins of the calibration curve."""

_MAX_BARS = 40


@dataclass(frozen=True, slots=True)
class HoldoutScores:
    """Scores on the holdout.

    Attributes:
        score: by the metric of the search.
        metrics: each metric of the task that is defined for these rows, by name.
        confusion: rows are true classes, columns predicted classes; ``None`` for a regression.
        residuals: predicted minus true value at ``QUANTILES``; ``None`` for a classification.
    """

    score: float
    metrics: dict[str, float]
    confusion: list[list[int]] | None = None
    residuals: list[float] | None = None


def score_holdout(
    task: Task,
    metric: str,
    truth: NDArray[Any],
    prediction: NDArray[Any],
    weights: NDArray[np.float64] | None = None,
) -> HoldoutScores:
    """Score a prediction by every metric of the task; confusion and residuals count rows without weights.

    ``truth``: (n_rows,) class codes or values. ``prediction``: (n_rows, n_classes) probabilities or (n_rows,)
    values.

    Raises:
        DataError: ``metric`` is not defined for these rows.
    """
    score = scorer(metric)(truth, prediction, weights)
    scores = {name: compute(name, truth, prediction, weights) for name in metrics_of(task)}
    defined = {name: value for name, value in scores.items() if np.isfinite(value)}
    if task == "regression":
        residuals = np.quantile(np.asarray(prediction, dtype=np.float64) - truth, QUANTILES)
        return HoldoutScores(score, defined, residuals=residuals.tolist())
    classes = prediction.shape[1]
    pairs = truth * classes + prediction.argmax(axis=1)
    confusion = np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    return HoldoutScores(score, defined, confusion=confusion.tolist())


class Curve(TypedDict):
    """A curve of one class (``code``), or of all classes pooled (code -1), and the area under it."""

    code: int
    x: list[float]
    y: list[float]
    area: float


class Calibration(TypedDict):
    """Mean prediction, mean true value (or share) and number of rows of each bin."""

    predicted: list[float]
    observed: list[float]
    rows: list[int]


def class_curves(truth: NDArray[Any], prediction: NDArray[Any]) -> tuple[list[Curve], list[Curve]]:
    """Return the ROC curves and the precision-recall curves, one class against the rest.

    With two classes there is only the ROC curve of the second one: the first one's mirrors it. With more than
    ``_MAX_CURVES`` classes there is only one ROC curve, of all classes pooled. ``truth``: (n_rows,) class
    codes. ``prediction``: (n_rows, n_classes) probabilities.
    """
    from sklearn import metrics

    classes = prediction.shape[1]
    if classes > _MAX_CURVES:
        rows = np.linspace(0, len(truth) - 1, min(len(truth), MAX_POOLED // classes)).astype(int)
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
    points = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MAX_POINTS)).astype(int))
    return Curve(code=code, x=_rounded(x[points]), y=_rounded(y[points]), area=float(area))


def _class_calibration(truth: NDArray[Any], prediction: NDArray[Any]) -> Calibration:
    """Compare predicted probabilities with observed frequencies, in bins of equal width.

    With two classes this uses the probability of the second one, otherwise that of the predicted class.
    """
    if prediction.shape[1] == 2:
        predicted, right = prediction[:, 1], truth == 1
    else:
        predicted, right = prediction.max(axis=1), prediction.argmax(axis=1) == truth
    return _calibration(predicted, right, np.minimum((predicted * _BINS).astype(int), _BINS - 1))


def _value_calibration(truth: NDArray[Any], prediction: NDArray[Any]) -> Calibration:
    """Compare mean predicted and mean true values, in bins with about the same number of rows."""
    order = np.argsort(np.argsort(prediction, kind="stable"), kind="stable")
    return _calibration(prediction, truth, order * min(_BINS, len(truth)) // len(truth))


def _calibration(predicted: NDArray[Any], observed: NDArray[Any], bins: NDArray[Any]) -> Calibration:
    rows = np.bincount(bins)
    held = rows > 0
    return Calibration(
        predicted=_rounded(np.bincount(bins, predicted)[held] / rows[held]),
        observed=_rounded(np.bincount(bins, observed)[held] / rows[held]),
        rows=rows[held].tolist(),
    )


def scatter(truth: NDArray[Any], prediction: NDArray[Any], *, seed: int) -> dict[str, list[float]]:
    """Return true and predicted values of at most ``_MAX_SCATTER`` rows."""
    picked = np.arange(len(truth))
    if len(picked) > _MAX_SCATTER:
        picked = np.sort(np.random.default_rng(seed).choice(len(truth), _MAX_SCATTER, replace=False))
    return {"truth": _rounded(truth[picked]), "predicted": _rounded(prediction[picked])}


def _histogram(values: NDArray[Any]) -> dict[str, list[float]]:
    """Return a histogram: middles and widths of the bars, and their numbers of rows."""
    counts, edges = np.histogram(values, bins=int(np.clip(np.sqrt(len(values)), 5, _MAX_BARS)))
    return {
        "middle": _rounded((edges[1:] + edges[:-1]) / 2),
        "width": _rounded(np.diff(edges)),
        "rows": counts.tolist(),
    }


def _rounded(values: NDArray[Any]) -> list[float]:
    """Round values to six digits, which keeps the page small."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64).tolist()]


Predict = Callable[[NDArray[np.float32]], NDArray[Any]]
"""(n_rows, n_features) float32 -> predictions, as ``Fitted.predict`` returns them."""

_REPEATS = 5
"""Permutations of each feature."""

_MAX_FEATURES = 25
"""Features that are permuted, those with the highest importance in the model."""

_MAX_ROWS = 20_000
"""Rows that are permuted at most. The standard error of an accuracy's decrease of 0.01 is about 0.001."""

_MAX_TRAVERSALS = 20_000_000
"""Row-tree traversals at most, some seconds on one core; this limits the rows."""

MAX_VALUES = 50_000_000
"""Values in the permuted rows at most, 200 MB; this limits the rows of a wide table."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Content of the report beyond ``result.json``.

    Attributes:
        interval: 95 % confidence interval of the score; ``None`` if it is undefined.
        baseline: score without any feature; ``None`` if the metric is undefined for it.
        permutation: feature -> mean and standard deviation of the score's decrease, largest first.
        warnings: most serious first.
        calibration: predicted probabilities and observed frequencies, or predicted and true means.
        recalls: precision-recall curves if there are few classes.
        scatter: true and predicted values of some rows; ``None`` for a classification.
        residuals: histogram of predicted minus true values; ``None`` for a classification.
    """

    interval: tuple[float, float] | None
    baseline: float | None
    permutation: dict[str, tuple[float, float]]
    warnings: tuple[str, ...]
    calibration: Calibration
    roc: list[Curve] = field(default_factory=list)
    recalls: list[Curve] = field(default_factory=list)
    scatter: dict[str, list[float]] | None = None
    residuals: dict[str, list[float]] | None = None


def diagnose(evidence: Evidence, predict: Predict, *, trees: int) -> Diagnostics:
    """Return the diagnostics of a model.

    The ``interval`` of the evidence is computed here. The number of trees limits the rows of the permutation
    importance.
    """
    truth, prediction = evidence.test_target, np.asarray(evidence.prediction)
    interval = score_interval(
        evidence.metric,
        truth,
        prediction,
        seed=evidence.seed,
        weights=evidence.test_weights,
        units=evidence.units,
    )
    evidence = replace(evidence, interval=interval)
    losses = permutation_importances(
        evidence.metric,
        evidence.direction,
        evidence.test,
        truth,
        predict,
        evidence.ranked[:_MAX_FEATURES],
        trees=trees,
        seed=evidence.seed,
        weights=evidence.test_weights,
    )
    ordered = sorted(losses.items(), key=lambda pair: (-pair[1][0], pair[0]))
    baseline = baseline_score(evidence)
    charts: dict[str, Any]
    if evidence.labels is None:
        charts = {
            "calibration": _value_calibration(truth, prediction),
            "scatter": scatter(truth, prediction, seed=evidence.seed),
            "residuals": _histogram(prediction - truth),
        }
    else:
        roc, recalls = class_curves(truth, prediction)
        charts = {"calibration": _class_calibration(truth, prediction), "roc": roc, "recalls": recalls}
    return Diagnostics(
        interval=interval,
        baseline=baseline if np.isfinite(baseline) else None,
        permutation={evidence.features[column]: loss for column, loss in ordered},
        warnings=tuple(find_warnings(evidence)),
        **charts,
    )


def permutation_importances(
    metric: str,
    direction: str,
    features: Matrix,
    truth: NDArray[Any],
    predict: Predict,
    columns: Sequence[int],
    *,
    trees: int,
    seed: int,
    weights: NDArray[np.float64] | None = None,
) -> dict[int, tuple[float, float]]:
    """Return how much the score decreases when a column is permuted (Breiman, "Random forests", 2001).

    The result maps each column to the mean and standard deviation of the decrease: positive if the model
    needs the feature. It is empty if the metric is undefined for these rows. ``features``: (n_rows,
    n_features) rows that the model was not fitted on; with many ``trees`` or features, a sample of them.
    ``columns``: positions to permute.
    """
    generator = np.random.default_rng(seed)
    most = max(
        100,
        min(
            _MAX_ROWS,
            _MAX_TRAVERSALS // (max(1, trees) * _REPEATS * max(1, len(columns))),
            MAX_VALUES // (_REPEATS * features.shape[1]),
        ),
    )
    picked = np.arange(len(truth))
    if len(picked) > most:
        picked = np.sort(generator.choice(len(truth), most, replace=False))
    rows, picked_truth = features[picked], truth[picked]
    weights = None if weights is None else weights[picked]
    sign = 1.0 if direction == "maximize" else -1.0
    base = compute(metric, picked_truth, predict(rows), weights)
    permutations = [generator.permutation(len(rows)) for _ in range(_REPEATS)]
    # One call for all permutations of a feature: a forest's call costs more than a few hundred rows.
    stacked = np.tile(rows, (_REPEATS, 1))
    importances: dict[int, tuple[float, float]] = {}
    for column in columns:
        stacked[:, column] = np.concatenate([rows[permutation, column] for permutation in permutations])
        losses = [
            sign * (base - compute(metric, picked_truth, part, weights))
            for part in np.split(predict(stacked), _REPEATS)
        ]
        stacked[:, column] = np.tile(rows[:, column], _REPEATS)
        if np.isfinite(losses).all():
            importances[column] = float(np.mean(losses)), float(np.std(losses))
    return importances
