"""Champion and challenger on the same rows: which is better, by how much, and with what confidence.

A challenger replaces the champion automatically (``[deploy] mode = "auto"``) if, with 95 % confidence, its
improvement is more than ``[deploy] min_improvement``.

This is a one-sided test. With the default of 0 the challenger must be better, not just ahead on this holdout:
of two equally good models the champion stays in 19 of 20 comparisons, whereas a rule on the difference alone
would replace it in every other one. A negative ``min_improvement`` makes it a test of non-inferiority, for
jobs that prefer fresh models: -0.01 deploys a model that is, with the same confidence, at most 0.01 worse.

Confidence comes from the bootstrap: rows are drawn with replacement (percentile bootstrap; Efron and
Tibshirani, "An introduction to the bootstrap", 1993). If there are many rows, each resample has fewer rows
than the data and the spread is scaled by the square root of the share (m out of n bootstrap; Bickel, Götze
and van Zwet, 1997), which ``scipy.stats.bootstrap`` does not offer: each of its resamples would be as large
as the holdout. Groups, and blocks of time, are drawn as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.resampling import Resampler, Rows
from dmls_core.models.metrics import METRICS, compute
from dmls_core.spec.definitions import Direction

CONFIDENCE = 0.95

MIN_RESAMPLES = 50

_SCORE_RESAMPLES = 400
_SCORE_ROWS = 4_000
"""Rows of one resample of a score at most."""

_SCORE_CLASSES = 4_000
"""Classes of all resamples together, above ``MIN_RESAMPLES``, for a metric computed class by class."""

PAIRED_RESAMPLES = 200
PAIRED_ROWS = 2_000
"""Rows of one paired resample at most."""


def score_interval(
    metric: str,
    truth: NDArray[Any],
    prediction: NDArray[Any],
    *,
    seed: int,
    weights: NDArray[np.float64] | None = None,
    units: NDArray[np.int64] | None = None,
) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a score; ``None`` if most resamples leave it undefined.

    ``truth``: (n_rows,) class codes or values. ``prediction``: (n_rows, n_classes) probabilities or (n_rows,)
    values. ``weights`` and ``units``: (n_rows,), see ``RowRoles``.
    """
    resamples = _SCORE_RESAMPLES
    if METRICS[metric].per_class:
        resamples = max(MIN_RESAMPLES, min(_SCORE_RESAMPLES, _SCORE_CLASSES // prediction.shape[1]))

    def score(rows: Rows) -> float:
        return compute(metric, truth[rows], prediction[rows], None if weights is None else weights[rows])

    resampler = Resampler(len(truth), _SCORE_ROWS, units)
    scores = np.array([score(rows) for rows in resampler.draws(resamples, seed)])
    scores = scores[np.isfinite(scores)]
    if len(scores) < resamples / 2:
        return None
    low, high = resampler.scale(_percentiles(scores), score).tolist()
    return low, high


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
    weights: NDArray[np.float64] | None = None,
    units: NDArray[np.int64] | None = None,
) -> PairedBootstrap | None:
    """Resample the same rows for both models; return the distribution of the improvement.

    The result is ``None`` if most resamples leave the metric undefined. The interval of ``max_error``, which
    depends on single rows, is only a rough indication. ``sign`` is 1 if higher is better, otherwise -1;
    shapes as in ``score_interval``.
    """
    classes = champion.shape[1] if champion.ndim > 1 else 1
    resamples = PAIRED_RESAMPLES
    if METRICS[metric].per_class and classes > 2:
        resamples = max(MIN_RESAMPLES, PAIRED_RESAMPLES // classes)

    def improvement(rows: Rows) -> float:
        weighing = None if weights is None else weights[rows]
        challenger_score, champion_score = (
            compute(metric, truth[rows], prediction[rows], weighing) for prediction in (challenger, champion)
        )
        return sign * (challenger_score - champion_score)

    resampler = Resampler(len(truth), PAIRED_ROWS, units)
    improvements = np.array([improvement(rows) for rows in resampler.draws(resamples, seed)])
    improvements = improvements[np.isfinite(improvements)]
    if len(improvements) < resamples / 2:
        return None
    improvements = resampler.scale(improvements, improvement)
    low, high = _percentiles(improvements)
    return PairedBootstrap((float(low), float(high)), float((improvements > margin).mean()))


def _percentiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    tail = (1 - CONFIDENCE) / 2
    ends: NDArray[np.float64] = np.quantile(values, [tail, 1 - tail])
    return ends


Freshness = Literal["all", "some", "none", "unknown"]
"""Part of the held-out rows that the champion was certainly not trained on."""

_CAVEATS: Mapping[Freshness, str] = {
    "none": "the champion was trained on some of these rows, which favors it",
    "unknown": "the champion may have been trained on some of these rows, which would favor it",
}
"""Why a champion's score on rows that are not certainly new to it may be too good."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Champion and challenger on the same rows; its JSON is ``comparison`` in ``result.json``.

    Attributes:
        champion_version: version in MLflow's registry.
        comparable: whether there are scores; otherwise ``reason`` explains why not.
        difference: improvement in units of the metric; below 0 the challenger is worse.
        interval: 95 % confidence interval of ``difference``.
        probability: that the improvement exceeds ``min_improvement``.
        better: whether the rule for ``[deploy] mode = "auto"`` holds.
        conclusive: whether the scores say which model is better. On rows that the champion may have been
            trained on they do so only if the challenger wins all the same.
        confidence: that the rule requires.
        rows: number of held-out rows that both were scored on.
        fresh: whether all, none or an unknown part of these rows is new to the champion; ``some``: only the
            new rows of the holdout were used.
    """

    metric: str
    direction: Direction
    champion_version: int
    champion_run_key: str
    comparable: bool
    reason: str
    min_improvement: float = 0.0
    champion_score: float | None = None
    challenger_score: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    probability: float | None = None
    better: bool = False
    conclusive: bool = False
    confidence: float = CONFIDENCE
    rows: int = 0
    fresh: Freshness = "unknown"

    def as_json(self) -> dict[str, Any]:
        """Return ``comparison`` of ``result.json``."""
        return asdict(self) | {"interval": list(self.interval) if self.interval else None}


def compare(
    metric: str,
    direction: Direction,
    truth: NDArray[Any],
    champion: NDArray[Any],
    challenger: NDArray[Any],
    *,
    version: int,
    run_key: str,
    min_improvement: float,
    fresh: Freshness,
    seed: int,
    weights: NDArray[np.float64] | None = None,
    units: NDArray[np.int64] | None = None,
) -> Comparison:
    """Compare the predictions of two models for the same rows, and apply the rule.

    ``truth``: (n_rows,) class codes or values. Predictions: (n_rows, n_classes) probabilities or (n_rows,)
    values. ``version`` and ``run_key`` identify the champion; ``weights`` and ``units`` as in
    ``score_interval``.
    """
    scores = [compute(metric, truth, prediction, weights) for prediction in (champion, challenger)]
    common: dict[str, Any] = {
        "metric": metric,
        "direction": direction,
        "champion_version": version,
        "champion_run_key": run_key,
        "min_improvement": min_improvement,
        "rows": len(truth),
        "fresh": fresh,
    }
    sign = 1.0 if direction == "maximize" else -1.0
    difference = sign * (scores[1] - scores[0])
    paired = (
        paired_bootstrap(
            metric,
            truth,
            champion,
            challenger,
            sign=sign,
            margin=min_improvement,
            seed=seed,
            weights=weights,
            units=units,
        )
        if np.isfinite(difference)
        else None
    )
    if paired is None:
        return Comparison(
            **common,
            comparable=False,
            reason=f"not comparable: {metric} is not defined for {len(truth)} rows of this holdout",
        )
    comparison = Comparison(
        **common,
        comparable=True,
        champion_score=scores[0],
        challenger_score=scores[1],
        difference=difference,
        interval=paired.interval,
        probability=paired.probability,
        better=paired.probability >= CONFIDENCE,
        conclusive=fresh not in _CAVEATS or paired.interval[0] > 0,
        reason="",
    )
    return replace(comparison, reason=_reason(comparison, difference, paired))


def _reason(comparison: Comparison, difference: float, paired: PairedBootstrap) -> str:
    """Return both scores, the verdict with its caveat, and the rule of ``mode = "auto"``, in one sentence."""
    caveat, margin = _CAVEATS.get(comparison.fresh, ""), comparison.min_improvement
    rows = f"{comparison.rows:,} held-out rows" + ("" if caveat else " that the champion was not trained on")
    scores = (
        f"on {rows}, the challenger has {comparison.metric} {comparison.challenger_score:.4f} and the "
        f"champion {comparison.champion_score:.4f}"
    )
    if not comparison.conclusive:
        verdict = f"this does not say which one is better, since {caveat}"
        if not comparison.better:
            return f"{scores}: {verdict}"
    else:
        verdict = _outcome(difference, paired.interval) + (f", although {caveat}" if caveat else "")
    required = (
        f"an improvement of more than {margin:.4g}" if margin >= 0 else f"being at most {-margin:.4g} worse"
    )
    passed = "reaches" if comparison.better else "is below"
    return (
        f"{scores}: {verdict}; the probability of {required} is {paired.probability:.1%}, which {passed} the "
        f"required {CONFIDENCE:.0%}"
    )


def _outcome(difference: float, interval: tuple[float, float]) -> str:
    low, high = interval
    if difference == low == high == 0:
        return "both are equally good"
    word = "better" if difference > 0 else "worse"
    outcome = f"the challenger is {word} by {abs(difference):.4g}" if difference else "both are equally good"
    chance = ", which may be chance" if low <= 0 <= high else ""
    return f"{outcome} (95 % interval {low:.4g} to {high:.4g}){chance}"
