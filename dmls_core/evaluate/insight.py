"""Everything about a model on its holdout that takes more than its predictions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dmls_core.evaluate import curves
from dmls_core.evaluate.checks import Evidence, baseline, warnings_of
from dmls_core.evaluate.intervals import bootstrap_interval
from dmls_core.evaluate.permutation import FEATURES, Predict, permutation_importances


@dataclass(frozen=True, slots=True)
class Insight:
    """What the report says beyond ``result.json``.

    Attributes:
        interval: 95 % confidence interval of the score; ``None`` where it has none.
        baseline: the score of a model that knows no feature; ``None`` where the metric is not defined for it.
        permutation: feature -> mean and standard deviation of what the score loses without it, the largest
            first.
        warnings: what the user should know, the worst first.
        roc: ROC curves; precision-recall curves are in ``recalls``.
        recalls: precision-recall curves, where the classes are few.
        calibration: stated probabilities against what came true, or predicted means against true ones.
        scatter: true and predicted values of some rows; ``None`` for a classification.
        residuals: histogram of predicted minus true values; ``None`` for a classification.
    """

    interval: tuple[float, float] | None
    baseline: float | None
    permutation: dict[str, tuple[float, float]]
    warnings: tuple[str, ...]
    calibration: curves.Calibration
    roc: list[curves.Curve] = field(default_factory=list)
    recalls: list[curves.Curve] = field(default_factory=list)
    scatter: dict[str, list[float]] | None = None
    residuals: dict[str, list[float]] | None = None


def examine(evidence: Evidence, predict: Predict, *, trees: int) -> Insight:
    """Look at a model from all sides.

    Args:
        evidence: what is known about the run; its ``interval`` is found here.
        predict: the model.
        trees: how many trees it has, which bounds what is asked of it.
    """
    truth, found = evidence.test_target, np.asarray(evidence.prediction)
    interval = bootstrap_interval(evidence.metric, truth, found, seed=evidence.seed)
    evidence = replace(evidence, interval=interval)
    losses = permutation_importances(
        evidence.metric,
        evidence.direction,
        evidence.test,
        truth,
        predict,
        evidence.ranked[:FEATURES],
        trees=trees,
        seed=evidence.seed,
    )
    ordered = sorted(losses.items(), key=lambda pair: (-pair[1][0], pair[0]))
    guess = baseline(evidence)
    charts: dict[str, Any]
    if evidence.labels is None:
        charts = {
            "calibration": curves.value_calibration(truth, found),
            "scatter": curves.scatter(truth, found, seed=evidence.seed),
            "residuals": curves.histogram(found - truth),
        }
    else:
        roc, recalls = curves.class_curves(truth, found)
        charts = {"calibration": curves.class_calibration(truth, found), "roc": roc, "recalls": recalls}
    return Insight(
        interval=interval,
        baseline=guess if np.isfinite(guess) else None,
        permutation={evidence.features[column]: loss for column, loss in ordered},
        warnings=tuple(warnings_of(evidence)),
        **charts,
    )
