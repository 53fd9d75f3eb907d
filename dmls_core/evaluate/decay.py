"""Decay: compare a model's score on predictions with delayed labels with its score in training.

A model has decayed if both of these hold:

* Its error is at least a tenth larger than on the holdout of its training, so the loss matters. The
  error is 1 minus the score, or the score itself if lower is better.
* The loss is significant: a one-sided test of the difference of both scores has a p-value of at most
  0.001. Both scores are assumed to be normally distributed, with the spread of their bootstrap intervals.

A small holdout underestimates the spread: thirty rows that were all predicted correctly have none. So the
spread of the holdout is at least that of the labeled rows, scaled to the holdout's number of rows. A model
that has not decayed is thus reported in about one of 1,000 checks, and in fewer with many rows, where the
first condition decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.comparison import CONFIDENCE, score_interval
from dmls_core.models.metrics import compute
from dmls_core.spec.definitions import Direction

_ALPHA = 0.001

_MIN_GROWTH = 0.1

MIN_ROWS = 100

_SUBSTITUTES = {"max_error": "mae"}
"""Metrics that grow with the number of rows -> the metric used instead."""

_PROBABILITY_METRICS = frozenset({"roc_auc", "average_precision", "log_loss"})
"""Metrics that cannot score a class that the model does not know."""

RULE = (
    "A version has decayed if its error (1 minus the score, or the score itself if lower is better) is at "
    f"least {_MIN_GROWTH:.0%} larger than in training, and a one-sided test of both scores, using the spread "
    f"of their bootstrap intervals, is significant (p of at most {_ALPHA:g}). At least {MIN_ROWS} labeled "
    "predictions are needed."
)
"""The definition of decay, for users."""

Verdict = Literal["decayed", "steady", "too few rows", "not defined"]


@dataclass(frozen=True, slots=True)
class TrainingScore:
    """A model's score on the holdout of its training.

    Attributes:
        interval: 95 % confidence interval of the score; ``None`` if unknown.
        rows: number of held-out rows.
        labels: classes of a classifier, in the order of its probabilities.
    """

    metric: str
    direction: Direction
    score: float
    interval: tuple[float, float] | None
    rows: int
    labels: tuple[str, ...] | None

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> TrainingScore:
        """Return the score in a run's ``result.json``."""
        metric, holdout = result["metric"], result["holdout"]
        other = _SUBSTITUTES.get(metric)
        interval = None if other else holdout.get("interval")
        return cls(
            metric=other or metric,
            direction=result["direction"],
            score=holdout["metrics"][other] if other else result["score"],
            interval=(interval[0], interval[1]) if interval else None,
            rows=result["data"]["holdout_rows"],
            labels=tuple(result["labels"]) if result["labels"] else None,
        )


@dataclass(frozen=True, slots=True)
class Decay:
    """A model's score on labeled predictions compared with its score in training.

    Attributes:
        verdict: ``not defined`` if the metric is undefined for these rows.
        rows: number of labeled predictions.
        score: score on them; ``None`` if the model was not evaluated.
        interval: 95 % confidence interval of the score.
        trained_score: score on the holdout of the training, which has ``trained_rows`` rows.
        growth: relative increase of the error; ``None`` if there was no error in training.
        p_value: of the hypothesis that the score is no worse.
        unknown: labeled predictions whose class the model does not know.
    """

    verdict: Verdict
    metric: str
    direction: Direction
    rows: int
    score: float | None
    interval: tuple[float, float] | None
    trained_score: float
    trained_interval: tuple[float, float] | None
    trained_rows: int
    growth: float | None = None
    p_value: float | None = None
    unknown: int = 0

    def summary(self, version: int) -> str:
        """Return the result for a version in one line."""
        basis = f"{self.rows:,} labeled predictions of version {version}"
        if self.verdict == "too few rows":
            return f"too few labels: {basis}, at least {MIN_ROWS} are needed"
        if self.score is None:
            return f"{self.metric} is not defined for {basis}"
        scores = f"{self.metric} {self.score:.4g} on {basis}, {self.trained_score:.4g} in training"
        return f"{scores}: the model has decayed" if self.verdict == "decayed" else f"{scores}: no decay"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON data."""
        intervals = ("interval", "trained_interval")
        return asdict(self) | {
            key: list(interval) if (interval := getattr(self, key)) else None for key in intervals
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Decay:
        """Rebuild a comparison from the result of ``as_json``."""
        intervals = ("interval", "trained_interval")
        return cls(**{**data, **{key: tuple(data[key]) if data[key] else None for key in intervals}})


def evaluate_decay(trained: TrainingScore, truth: NDArray[Any], prediction: NDArray[Any]) -> Decay:
    """Compare a model's score on labeled predictions with its score in training.

    ``truth``: (n_rows,) values, or class codes, where a code beyond the model's classes is an unknown class.
    ``prediction``: (n_rows,) values, or (n_rows, n_classes) probabilities.
    """
    unknown = np.zeros(len(truth), bool) if trained.labels is None else truth >= len(trained.labels)
    if trained.metric in _PROBABILITY_METRICS:
        truth, prediction = truth[~unknown], prediction[~unknown]
    common: dict[str, Any] = {
        "metric": trained.metric,
        "direction": trained.direction,
        "rows": len(truth),
        "trained_score": trained.score,
        "trained_interval": trained.interval,
        "trained_rows": trained.rows,
        "unknown": int(unknown.sum()),
    }
    if len(truth) < MIN_ROWS:
        return Decay("too few rows", score=None, interval=None, **common)
    score = compute(trained.metric, truth, prediction)
    interval = score_interval(trained.metric, truth, prediction, seed=0) if isfinite(score) else None
    if interval is None:
        return Decay("not defined", score=None, interval=None, **common)
    p_value = _p_value(trained, score, interval, len(truth))
    before, now = _error(trained, trained.score), _error(trained, score)
    large = now > before and now - before >= _MIN_GROWTH * abs(before)
    return Decay(
        "decayed" if large and p_value <= _ALPHA else "steady",
        score=score,
        interval=interval,
        growth=(now - before) / abs(before) if before else None,
        p_value=p_value,
        **common,
    )


def _error(trained: TrainingScore, score: float) -> float:
    return 1 - score if trained.direction == "maximize" else score


def _p_value(trained: TrainingScore, score: float, interval: tuple[float, float], rows: int) -> float:
    """Return the probability of at least this loss if the model is as good as in training."""
    from scipy.stats import norm

    width = 2 * float(norm.ppf((1 + CONFIDENCE) / 2))
    spread = (interval[1] - interval[0]) / width
    training_spread = (trained.interval[1] - trained.interval[0]) / width if trained.interval else 0.0
    before = max(training_spread, spread * sqrt(rows / trained.rows))
    loss = _error(trained, score) - _error(trained, trained.score)
    total_spread = sqrt(spread**2 + before**2)
    if not total_spread:  # all rows are predicted correctly, or all incorrectly
        return 0.0 if loss > 0 else 1.0
    return float(norm.sf(loss / total_spread))
