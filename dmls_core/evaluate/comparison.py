"""Champion and challenger on the same rows: which is better, by how much, and how sure that is.

The rule by which a challenger takes the champion's place by itself (``[deploy] mode = "auto"``):

    with 95 % confidence its improvement is more than ``[deploy] min_improvement``.

That is a one-sided test. With the default of 0 it asks for a challenger that is better, not for one that
happens to be ahead on this holdout: of two models that are equally good the champion stays in 19 of 20
comparisons, where a rule on the bare difference would swap them in every other one. A negative
``min_improvement`` makes it the test of non-inferiority that a job wants whose models must be fresh above
all: -0.01 deploys what is, with the same confidence, at most 0.01 worse.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.metrics import METRICS, compute
from dmls_core.spec.definitions import Direction

CONFIDENCE = 0.95
RESAMPLES = 200
ROWS = 2_000
"""Rows of one resample at most: the metrics of more are dear, and the spread can be scaled."""

FEWEST_RESAMPLES = 50

Freshness = Literal["all", "some", "none", "unknown"]
"""Which of the held-out rows the champion cannot have been trained on, so far as that is known."""

SEEN: dict[Freshness, str] = {
    "all": "The champion was trained on none of these rows.",
    "some": "Of the holdout only those rows were taken that are new to the champion.",
    "none": "The champion was trained on some of these rows, which flatters it.",
    "unknown": "The champion may have been trained on some of these rows, which would flatter it.",
}
"""What is to be said of each kind of rows."""


@dataclass(frozen=True, slots=True)
class Paired:
    """What the resamples say of an improvement: above 0 the challenger is better, whatever the metric.

    Attributes:
        interval: holds the improvement with 95 % confidence.
        probability: share of the resamples in which it is above the margin.
    """

    interval: tuple[float, float]
    probability: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Champion and challenger on the same rows; its JSON is ``comparison`` in ``result.json``.

    Attributes:
        metric: what both are scored by.
        direction: which way is better.
        champion_version: in MLflow's registry.
        champion_run_key: the run that made it.
        comparable: whether there are scores; else ``reason`` says why not, and the next six are ``None``.
        champion_score: the champion's on ``rows``.
        challenger_score: the challenger's on the same rows.
        difference: by how much the challenger is better, in units of the metric; below 0 it is worse.
        interval: 95 % confidence interval of ``difference``.
        probability: that the improvement is more than ``min_improvement``.
        better: whether the rule for ``[deploy] mode = "auto"`` holds.
        min_improvement: of the spec.
        confidence: that the rule asks for.
        rows: held-out rows that both were scored on.
        fresh: ``all`` of these rows are new to the champion, or none is, or that is unknown; ``some``: of
            the holdout only the new ones were taken.
        reason: the outcome in words.
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
    confidence: float = CONFIDENCE
    rows: int = 0
    fresh: Freshness = "unknown"

    def as_json(self) -> dict[str, Any]:
        """Return what ``result.json`` says."""
        interval = list(self.interval) if self.interval else None
        return asdict(self) | {"interval": interval, "note": SEEN[self.fresh] if self.comparable else ""}


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
) -> Comparison:
    """Compare the answers of two models to the same rows, and apply the rule.

    Args:
        metric: name of the metric.
        direction: which way is better.
        truth: (n_rows,) class codes or values.
        champion: its (n_rows, n_classes) probabilities or (n_rows,) values.
        challenger: its answers, of the same shape.
        version: the champion's.
        run_key: of the champion's run.
        min_improvement: by how much the challenger must be better.
        fresh: what the champion has seen of these rows.
        seed: the same seed gives the same numbers.
    """
    scores = [compute(metric, truth, answers) for answers in (champion, challenger)]
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
        paired_bootstrap(metric, truth, champion, challenger, sign=sign, margin=min_improvement, seed=seed)
        if np.isfinite(difference)
        else None
    )
    if paired is None:
        return Comparison(
            **common,
            comparable=False,
            reason=f"not comparable: {metric} is not defined for {len(truth)} rows of this holdout",
        )
    better = paired.probability >= CONFIDENCE
    return Comparison(
        **common,
        comparable=True,
        champion_score=scores[0],
        challenger_score=scores[1],
        difference=difference,
        interval=paired.interval,
        probability=paired.probability,
        better=better,
        reason=_reason(difference, paired, min_improvement, better=better),
    )


def paired_bootstrap(
    metric: str,
    truth: NDArray[Any],
    champion: NDArray[Any],
    challenger: NDArray[Any],
    *,
    sign: float,
    margin: float,
    seed: int,
) -> Paired | None:
    """Resample rows, the same ones for both models, and look how the improvement spreads.

    Percentile bootstrap of the paired difference (Efron and Tibshirani, "An introduction to the bootstrap",
    1993). Of more than ``ROWS`` rows only so many are drawn at a time, and the spread is scaled by the root
    of the share (the m out of n bootstrap; Bickel, Götze and van Zwet, 1997). ``scipy.stats.bootstrap`` has
    ``paired`` but no m out of n: every resample would be as large as the holdout, a hundred times the cost
    at 100,000 rows.

    The largest error of a regression (``max_error``) is no mean of anything: its interval is a hint at best.

    Args:
        metric: name of the metric.
        truth: (n_rows,).
        champion: its answers.
        challenger: its answers.
        sign: 1 where higher is better, else -1.
        margin: what the improvement must exceed to count.
        seed: the same seed gives the same numbers.

    Returns:
        ``None`` where the metric is not defined for most of the resamples.
    """
    generator = np.random.default_rng(seed)
    rows, drawn = len(truth), min(len(truth), ROWS)
    classes = champion.shape[1] if champion.ndim > 1 else 1
    resamples = RESAMPLES
    if METRICS[metric].per_class and classes > 2:
        resamples = max(FEWEST_RESAMPLES, RESAMPLES // classes)
    found = np.empty(resamples)
    for number in range(resamples):
        picked = generator.integers(0, rows, drawn)
        own, others = (compute(metric, truth[picked], answers[picked]) for answers in (challenger, champion))
        found[number] = sign * (own - others)
    found = found[np.isfinite(found)]
    if len(found) < resamples / 2:
        return None
    if drawn < rows:
        whole = sign * (compute(metric, truth, challenger) - compute(metric, truth, champion))
        found = whole + (found - whole) * np.sqrt(drawn / rows)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Paired((float(low), float(high)), float((found > margin).mean()))


def _reason(difference: float, paired: Paired, margin: float, *, better: bool) -> str:
    """Say what the rule came to."""
    low, high = paired.interval
    if difference == low == high == 0:
        told = "both answer equally well"
    else:
        told = f"better by {difference:.4g}" if difference > 0 else f"worse by {-difference:.4g}"
        if difference == 0:
            told = "equally good"
        told = f"the challenger is {told} (95 % interval {low:.4g} to {high:.4g})"
    asked = f"an improvement of more than {margin:.4g}" if margin >= 0 else f"at most {-margin:.4g} worse"
    verdict = "reaches" if better else "misses"
    return (
        f"{told}; the probability of {asked} is {paired.probability:.1%}, which {verdict} the "
        f"{CONFIDENCE:.0%} that the rule asks for"
    )
