"""What a user should know before believing a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.leakage import suspects
from dmls_core.models.metrics import compute
from dmls_core.spec.definitions import Task

RARE = 0.05
"""Share of the rows below which a class is rare."""

RATIO = 10
"""How many times as many rows the largest class then has, at least."""

BLIND = ("accuracy",)
"""Metrics that rare classes hardly move."""

FEW_HELD = 30
FEW_OF_A_CLASS = 5
TWINS = 0.05
SHOWN = 5
"""Names in one warning at most."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run knows when its model is scored.

    Attributes:
        task: what is predicted.
        metric: what was searched by.
        direction: ``maximize`` or ``minimize``.
        features: names of the features.
        labels: the classes; ``None`` for a regression.
        train: (n_train, n_features) float32.
        train_target: (n_train,) class codes or values.
        test: (n_test, n_features) float32: the rows held out.
        test_target: (n_test,).
        prediction: of the held-out rows: (n_test, n_classes) probabilities or (n_test,) values.
        importances: (n_features,) shares, as the model gives them.
        cv_score: the best trial's score in the search.
        interval: confidence interval of the metric on the held-out rows, where there is one.
        seed: seed of what is drawn.
    """

    task: Task
    metric: str
    direction: str
    features: Sequence[str]
    labels: Sequence[str] | None
    train: NDArray[np.float32]
    train_target: NDArray[Any]
    test: NDArray[np.float32]
    test_target: NDArray[Any]
    prediction: NDArray[Any]
    importances: NDArray[np.floating[Any]]
    cv_score: float | None
    interval: tuple[float, float] | None
    seed: int

    @property
    def ranked(self) -> list[int]:
        """Positions of the features that the model uses, the most important first."""
        order: list[int] = np.argsort(-self.importances, kind="stable").tolist()
        return [column for column in order if self.importances[column] > 0]


def warnings_of(evidence: Evidence) -> list[str]:
    """Return what the user should know, the worst first."""
    found = [_leaks(evidence), _twins(evidence), _no_better(evidence), _optimistic(evidence)]
    found += [_imbalance(evidence), _few_rows(evidence), _wide(evidence), _constants(evidence)]
    return [message for message in found if message]


def baseline(evidence: Evidence) -> float:
    """Return the score of always answering the training rows' shares of the classes, or their mean."""
    rows = len(evidence.test_target)
    if evidence.labels is None:
        return compute(evidence.metric, evidence.test_target, np.full(rows, evidence.train_target.mean()))
    counts = np.bincount(evidence.train_target, minlength=len(evidence.labels))
    shares = np.tile(counts / counts.sum(), (rows, 1))
    return compute(evidence.metric, evidence.test_target, shares)


def _leaks(evidence: Evidence) -> str:
    found = suspects(
        evidence.task, evidence.train, evidence.train_target, evidence.ranked, seed=evidence.seed
    )
    if not found:
        return ""
    names = _names([evidence.features[column] for column in found])
    told = f"{names} alone nearly tells" if len(found) == 1 else f"Each of {names} alone nearly tells"
    return (
        f"{told} the target. What is known only after the event, or "
        "is made from the target, belongs out, by [columns] drop: the score would not hold in use."
    )


def _twins(evidence: Evidence) -> str:
    twins = int(np.isin(_hashes(evidence.test), _hashes(evidence.train)).sum())
    if twins < 3 or twins <= TWINS * len(evidence.test):
        return ""
    return (
        f"{twins} of {len(evidence.test)} held-out rows have the same features as a training row: the score "
        "may partly measure memory. Take repeated rows out, unless the features take few values anyway."
    )


def _hashes(rows: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row, without a copy of the matrix."""
    draw = np.random.default_rng(0)
    factors = draw.integers(1, 2**63, size=(rows.shape[1], 1), dtype=np.uint64) | np.uint64(1)
    found = np.zeros(len(rows), dtype=np.uint64)
    bits = rows.view(np.uint32)
    for column in range(rows.shape[1]):
        found ^= found >> np.uint64(29)
        # Odd factors lose no bit.
        found += (bits[:, column].astype(np.uint64) + np.uint64(1)) * factors[column]
    return found


def _no_better(evidence: Evidence) -> str:
    guess = baseline(evidence)
    if evidence.interval is None or not np.isfinite(guess):
        return ""
    low, high = evidence.interval
    if guess < low if evidence.direction == "maximize" else guess > high:
        return ""
    answer = "class" if evidence.labels else "mean"
    return (
        f"The model is not clearly better than no model: always answering the training rows' {answer} has "
        f"{evidence.metric} {guess:.4g}. The features may not tell the target."
    )


def _optimistic(evidence: Evidence) -> str:
    if evidence.cv_score is None or evidence.interval is None:
        return ""
    low, high = evidence.interval
    better = (
        evidence.cv_score > high + (high - low)
        if evidence.direction == "maximize"
        else evidence.cv_score < low - (high - low)
    )
    if high == low or not better:
        return ""
    return (
        f"The search scored {evidence.cv_score:.4g}, far better than the holdout: the best of many trials "
        "looks better than it is, or the held-out rows are of another kind."
    )


def _imbalance(evidence: Evidence) -> str:
    if evidence.labels is None or evidence.metric not in BLIND:
        return ""
    counts = np.bincount(
        np.concatenate([evidence.train_target, evidence.test_target]), minlength=len(evidence.labels)
    )
    rarest = int(counts.argmin())
    if counts[rarest] >= RARE * counts.sum() or RATIO * counts[rarest] > counts.max():
        return ""
    return (
        f"The classes are far from balanced: {evidence.labels[rarest]} has {counts[rarest]} of "
        f"{counts.sum()} rows. {evidence.metric} hardly notices it; balanced_accuracy or f1_macro would."
    )


def _few_rows(evidence: Evidence) -> str:
    held = len(evidence.test)
    if held < FEW_HELD:
        return f"Only {held} rows were held out: the score may be off by much (see its interval)."
    if evidence.labels is None:
        return ""
    counts = np.bincount(evidence.test_target, minlength=len(evidence.labels))
    few = [evidence.labels[code] for code in np.flatnonzero(counts < FEW_OF_A_CLASS).tolist()]
    if not few:
        return ""
    return f"Fewer than {FEW_OF_A_CLASS} rows of {_names(few)} were held out: little is known about them."


def _wide(evidence: Evidence) -> str:
    rows, columns = evidence.train.shape
    if columns <= rows:
        return ""
    return f"There are more features ({columns}) than training rows ({rows}): chance alone fits some of them."


def _constants(evidence: Evidence) -> str:
    first = evidence.train[0]
    same = np.ones(len(first), dtype=bool)
    for start in range(0, len(evidence.train), 65_536):
        block = evidence.train[start : start + 65_536]
        same &= ((block == first) | (np.isnan(block) & np.isnan(first))).all(axis=0)
    names = [evidence.features[column] for column in np.flatnonzero(same).tolist()]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return f"{_names(names)} {verb} the same value in every training row: nothing can be learnt from that."


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:SHOWN])
    return shown + (f" (and {len(names) - SHOWN} more)" if len(names) > SHOWN else "")
