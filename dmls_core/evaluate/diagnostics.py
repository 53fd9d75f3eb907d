"""Diagnostics of a model on its holdout: interval, baseline, permutation importance, curves and warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate import holdout
from dmls_core.evaluate.bootstrap import score_interval
from dmls_core.evaluate.checks import Evidence, baseline_score, find_warnings
from dmls_core.models.metrics import compute

Predict = Callable[[NDArray[np.float32]], NDArray[Any]]
"""(n_rows, n_features) float32 -> predictions, as ``Fitted.predict`` returns them."""

REPEATS = 5
"""Permutations of each feature."""

MAX_FEATURES = 25
"""Features that are permuted, those with the highest importance in the model."""

MAX_TRAVERSALS = 20_000_000
"""Row-tree traversals at most, some seconds on one core; this limits the rows."""


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
    calibration: holdout.Calibration
    roc: list[holdout.Curve] = field(default_factory=list)
    recalls: list[holdout.Curve] = field(default_factory=list)
    scatter: dict[str, list[float]] | None = None
    residuals: dict[str, list[float]] | None = None


def diagnose(evidence: Evidence, predict: Predict, *, trees: int) -> Diagnostics:
    """Return the diagnostics of a model.

    The ``interval`` of the evidence is computed here. The number of trees limits the rows of the permutation
    importance.
    """
    truth, prediction = evidence.test_target, np.asarray(evidence.prediction)
    interval = score_interval(evidence.metric, truth, prediction, seed=evidence.seed)
    evidence = replace(evidence, interval=interval)
    losses = permutation_importances(
        evidence.metric,
        evidence.direction,
        evidence.test,
        truth,
        predict,
        evidence.ranked[:MAX_FEATURES],
        trees=trees,
        seed=evidence.seed,
    )
    ordered = sorted(losses.items(), key=lambda pair: (-pair[1][0], pair[0]))
    baseline = baseline_score(evidence)
    charts: dict[str, Any]
    if evidence.labels is None:
        charts = {
            "calibration": holdout.value_calibration(truth, prediction),
            "scatter": holdout.scatter(truth, prediction, seed=evidence.seed),
            "residuals": holdout.histogram(prediction - truth),
        }
    else:
        roc, recalls = holdout.class_curves(truth, prediction)
        charts = {
            "calibration": holdout.class_calibration(truth, prediction),
            "roc": roc,
            "recalls": recalls,
        }
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
    features: NDArray[np.float32],
    truth: NDArray[Any],
    predict: Predict,
    columns: Sequence[int],
    *,
    trees: int,
    seed: int,
) -> dict[int, tuple[float, float]]:
    """Return how much the score decreases when a column is permuted (Breiman, "Random forests", 2001).

    The result maps each column to the mean and standard deviation of the decrease: positive if the model
    needs the feature. It is empty if the metric is undefined for these rows. ``features``: (n_rows,
    n_features) rows that the model was not fitted on; with many ``trees``, a sample of them. ``columns``:
    positions to permute.
    """
    generator = np.random.default_rng(seed)
    most = max(100, MAX_TRAVERSALS // (max(1, trees) * REPEATS * max(1, len(columns))))
    picked = np.arange(len(truth))
    if len(picked) > most:
        picked = np.sort(generator.choice(len(truth), most, replace=False))
    rows, known = features[picked], truth[picked]
    sign = 1.0 if direction == "maximize" else -1.0
    base = compute(metric, known, predict(rows))
    permutations = [generator.permutation(len(rows)) for _ in range(REPEATS)]
    # One call for all permutations of a feature: a forest's call costs more than a few hundred rows.
    stacked = np.tile(rows, (REPEATS, 1))
    found: dict[int, tuple[float, float]] = {}
    for column in columns:
        stacked[:, column] = np.concatenate([rows[permutation, column] for permutation in permutations])
        losses = [
            sign * (base - compute(metric, known, part)) for part in np.split(predict(stacked), REPEATS)
        ]
        stacked[:, column] = np.tile(rows[:, column], REPEATS)
        if np.isfinite(losses).all():
            found[column] = float(np.mean(losses)), float(np.std(losses))
    return found
