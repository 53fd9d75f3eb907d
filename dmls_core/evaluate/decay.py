"""Has a model decayed? Its score on answers whose truth has become known, beside its score at training.

A model has decayed if two things hold:

* its error is at least a tenth larger than on the holdout of its training (``LARGER``), so the loss matters.
  The error is what a score lacks of 1, or the score itself where lower is better;
* that is no chance: a one-sided test of the difference of both scores has a p-value of at most ``ALPHA``.
  Both scores are taken for normally distributed, with the spread that the bootstrap gives them.

Few held-out rows give a poor idea of the spread: of thirty rows that were all predicted right none at all.
So the holdout's spread is taken to be at least that of the labelled rows, scaled to the holdout's number of
rows. A model that has not decayed is thus called decayed in about one of 1,000 looks, and in fewer of many
rows, where the first condition decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.intervals import CONFIDENCE, bootstrap_interval
from dmls_core.models.metrics import compute
from dmls_core.spec.definitions import Direction

ALPHA = 0.001
"""Largest p-value of a decay."""

LARGER = 0.1
"""Share by which the error must have grown at least."""

MIN_ROWS = 100
"""Labelled rows below which a model is not judged."""

JUDGED_BY = {"max_error": "mae"}
"""Metrics that grow with the number of rows -> what stands in for them."""

OF_PROBABILITIES = frozenset({"roc_auc", "average_precision", "log_loss"})
"""Metrics that have no place for a class that the model does not know."""

RULE = (
    "A version has decayed if its error (what its score lacks of 1, or the score itself where lower is "
    f"better) is at least {LARGER:.0%} larger than at training, and a one-sided test of both scores, with "
    f"the spread that the bootstrap gives them, says with p of at most {ALPHA:g} that this is no chance. "
    f"Fewer than {MIN_ROWS} labelled answers are not judged."
)
"""The same for users."""

Verdict = Literal["decayed", "steady", "too few rows", "not defined"]


@dataclass(frozen=True, slots=True)
class Trained:
    """How well a model did on the holdout of its training.

    Attributes:
        metric: what it is judged by.
        direction: which way is better.
        score: on the holdout.
        interval: holds the score with 95 % confidence; ``None`` where that is not known.
        rows: held out.
        labels: classes of a classifier, in the order of its probabilities.
    """

    metric: str
    direction: Direction
    score: float
    interval: tuple[float, float] | None
    rows: int
    labels: tuple[str, ...] | None

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Trained:
        """Read what ``result.json`` says of a run."""
        metric, holdout = result["metric"], result["holdout"]
        other = JUDGED_BY.get(metric)
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
    """A model's score on labelled answers beside its score at training.

    Attributes:
        verdict: ``not defined`` where the metric cannot be computed of these rows.
        metric: what it was judged by.
        direction: which way is better.
        rows: labelled answers.
        score: on them; ``None`` where the model was not judged.
        interval: holds the score with 95 % confidence.
        trained_score: on the holdout of the training.
        trained_interval: holds that one.
        trained_rows: held out.
        growth: of the error, as a share of the error at training; ``None`` if there was none then.
        p_value: of the score being no worse.
        unknown: labelled answers whose class the model does not know.
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
        """Return the outcome in one line."""
        about = f"{self.rows:,} labelled answers of version {version}"
        if self.verdict == "too few rows":
            return f"too few labels to judge: {about}, {MIN_ROWS} at least are needed"
        if self.score is None:
            return f"{self.metric} is not defined for {about}"
        told = f"{self.metric} {self.score:.4g} on {about}, {self.trained_score:.4g} at training"
        return f"{told}: the model has decayed" if self.verdict == "decayed" else f"{told}: no decay"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON data."""
        intervals = ("interval", "trained_interval")
        return asdict(self) | {
            key: list(found) if (found := getattr(self, key)) else None for key in intervals
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Decay:
        """Read what ``as_json`` returned."""
        intervals = ("interval", "trained_interval")
        return cls(**{**data, **{key: tuple(data[key]) if data[key] else None for key in intervals}})


def judge(trained: Trained, truth: NDArray[Any], answers: NDArray[Any]) -> Decay:
    """Compare a model's score on labelled answers with that of its training.

    Args:
        trained: how well the model did then.
        truth: (n_rows,) values, or codes of classes; a code beyond the model's classes is an unknown class.
        answers: (n_rows,) values, or (n_rows, n_classes) probabilities.
    """
    unknown = np.zeros(len(truth), bool) if trained.labels is None else truth >= len(trained.labels)
    if trained.metric in OF_PROBABILITIES:
        truth, answers = truth[~unknown], answers[~unknown]
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
    score = compute(trained.metric, truth, answers)
    interval = bootstrap_interval(trained.metric, truth, answers, seed=0) if isfinite(score) else None
    if interval is None:
        return Decay("not defined", score=None, interval=None, **common)
    p_value = _chance(trained, score, interval, len(truth))
    before, now = _error(trained, trained.score), _error(trained, score)
    large = now > before and now - before >= LARGER * abs(before)
    return Decay(
        "decayed" if large and p_value <= ALPHA else "steady",
        score=score,
        interval=interval,
        growth=(now - before) / abs(before) if before else None,
        p_value=p_value,
        **common,
    )


def _error(trained: Trained, score: float) -> float:
    return 1 - score if trained.direction == "maximize" else score


def _chance(trained: Trained, score: float, interval: tuple[float, float], rows: int) -> float:
    """Return the probability of a loss like this one where the model is as good as it was."""
    from scipy.stats import norm

    width = 2 * float(norm.ppf((1 + CONFIDENCE) / 2))
    spread = (interval[1] - interval[0]) / width
    known = (trained.interval[1] - trained.interval[0]) / width if trained.interval else 0.0
    before = max(known, spread * sqrt(rows / trained.rows))
    loss = _error(trained, score) - _error(trained, trained.score)
    whole = sqrt(spread**2 + before**2)
    if not whole:  # every row right, or every row wrong
        return 0.0 if loss > 0 else 1.0
    return float(norm.sf(loss / whole))
