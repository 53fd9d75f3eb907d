"""Warnings about a model's evaluation: suspicious scores, duplicate rows, imbalance, few rows and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.split.grouping import hash_rows
from dmls_core.models.metrics import compute
from dmls_core.spec.definitions import Task
from dmls_core.stored_matrix import Matrix

_RARE_SHARE = 0.05

_IMBALANCE_RATIO = 10
"""Smallest ratio between the largest class and a rare one for a warning."""

_INSENSITIVE_METRICS = ("accuracy",)
"""Metrics on which rare classes have little effect."""

_MIN_HOLDOUT_ROWS = 30
_MIN_HOLDOUT_GROUPS = 10
_MIN_CLASS_ROWS = 5
_MAX_DUPLICATES = 0.05

_PERFECT = 0.005
"""Share of the error without any feature up to which a model is too good not to be checked."""

_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """Data and predictions of a run that the evaluation uses.

    Attributes:
        labels: the classes; ``None`` for a regression.
        train: (n_train, n_features).
        train_target: (n_train,) class codes or values.
        test: (n_test, n_features) held-out rows.
        test_target: (n_test,) class codes or values.
        prediction: (n_test, n_classes) probabilities or (n_test,) values.
        importances: (n_features,) shares, as the model reports them.
        cv_score: the best trial's score in the search.
        interval: confidence interval of the metric on the holdout.
        train_weights: (n_train,) weights of the rows; ``None`` if all are equal.
        test_weights: (n_test,) likewise.
        units: (n_test,) groups or blocks of time; see ``RowRoles.units``.
        grouped: whether the units are groups.
        raw_names: the column of the data that each feature is from; empty if they are the same.
    """

    task: Task
    metric: str
    direction: str
    features: Sequence[str]
    labels: Sequence[str] | None
    train: NDArray[np.float32]
    train_target: NDArray[Any]
    test: Matrix
    test_target: NDArray[Any]
    prediction: NDArray[Any]
    importances: NDArray[np.floating[Any]]
    cv_score: float | None
    interval: tuple[float, float] | None
    seed: int
    train_weights: NDArray[np.float64] | None = None
    test_weights: NDArray[np.float64] | None = None
    units: NDArray[np.int64] | None = None
    grouped: bool = False
    raw_names: Sequence[str] = ()

    @property
    def sources(self) -> Sequence[str]:
        """The column of the data that each feature is from: users know no parts of a date."""
        return self.raw_names or self.features

    @property
    def ranked(self) -> list[int]:
        """Positions of the features that the model uses, most important first."""
        order: list[int] = np.argsort(-self.importances, kind="stable").tolist()
        return [column for column in order if self.importances[column] > 0]


def find_warnings(evidence: Evidence) -> list[str]:
    """Return the warnings about an evaluation, most serious first."""
    messages = [_perfect(evidence), _duplicates(evidence), _no_better(evidence), _optimistic(evidence)]
    messages += [_imbalance(evidence), _few_rows(evidence), _many_features(evidence), _constants(evidence)]
    return [message for message in messages if message]


def baseline_score(evidence: Evidence) -> float:
    """Return the score of always predicting the class shares, or the mean, of the training rows."""
    rows, weights = len(evidence.test_target), evidence.test_weights
    if evidence.labels is None:
        mean = np.average(evidence.train_target, weights=evidence.train_weights)
        return compute(evidence.metric, evidence.test_target, np.full(rows, mean), weights)
    counts = np.bincount(evidence.train_target, evidence.train_weights, minlength=len(evidence.labels))
    shares = np.tile(counts / counts.sum(), (rows, 1))
    return compute(evidence.metric, evidence.test_target, shares, weights)


def _perfect(evidence: Evidence) -> str:
    truth, prediction, weights = evidence.test_target, evidence.prediction, evidence.test_weights
    distinct = len(np.unique(truth))
    if distinct < 2:
        return ""
    if evidence.labels is None:
        error = 1 - compute("r2", truth, prediction, weights)
    else:
        missed = 1 - compute("balanced_accuracy", truth, prediction, weights)
        error = missed / (1 - 1 / distinct)
    score = compute(evidence.metric, truth, prediction, weights)
    best = score >= 1 if evidence.direction == "maximize" else score <= 0
    if not (best or error <= _PERFECT):
        return ""
    names = _names(list(dict.fromkeys(evidence.sources[column] for column in evidence.ranked[:3])))
    first = f", first of all {names}" if names else ""
    return (
        f"The model predicts the held-out rows almost without error ({evidence.metric} {score:.4g}), which "
        "is rare in practice. Check that the features are known before the target is, and not derived from "
        f"it{first}."
    )


def _duplicates(evidence: Evidence) -> str:
    training, held = np.sort(hash_rows(evidence.train)), hash_rows(evidence.test)
    nearest = np.searchsorted(training, held).clip(max=len(training) - 1)
    duplicates = int((training[nearest] == held).sum())
    if duplicates < 3 or duplicates <= _MAX_DUPLICATES * len(evidence.test):
        return ""
    return (
        f"{duplicates} of {len(evidence.test)} held-out rows have the same features as a training row: the "
        "score may partly measure memorization. Remove duplicate rows, or set [evaluation] group_duplicates, "
        "unless the features have few values."
    )


def _no_better(evidence: Evidence) -> str:
    baseline = baseline_score(evidence)
    if evidence.interval is None or not np.isfinite(baseline):
        return ""
    low, high = evidence.interval
    if baseline < low if evidence.direction == "maximize" else baseline > high:
        return ""
    answer = "class shares" if evidence.labels else "mean"
    return (
        f"The model is not clearly better than no model: always predicting the training rows' {answer} has "
        f"{evidence.metric} {baseline:.4g}. The features may not determine the target."
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
        f"The score in the search, {evidence.cv_score:.4g}, is much better than on the holdout: the best of "
        "many trials is optimistic, or the held-out rows differ from the others."
    )


def _imbalance(evidence: Evidence) -> str:
    if evidence.labels is None or evidence.metric not in _INSENSITIVE_METRICS:
        return ""
    counts = np.bincount(
        np.concatenate([evidence.train_target, evidence.test_target]), minlength=len(evidence.labels)
    )
    rarest = int(counts.argmin())
    if counts[rarest] >= _RARE_SHARE * counts.sum() or _IMBALANCE_RATIO * counts[rarest] > counts.max():
        return ""
    return (
        f"The classes are imbalanced: {evidence.labels[rarest]} has {counts[rarest]} of {counts.sum()} rows, "
        f"with little effect on {evidence.metric}. Consider balanced_accuracy or f1_macro."
    )


def _few_rows(evidence: Evidence) -> str:
    held = len(evidence.test)
    if held < _MIN_HOLDOUT_ROWS:
        return f"Only {held} rows were held out, so the score is uncertain (see its interval)."
    units = evidence.units if evidence.grouped else None
    if units is not None and (groups := len(np.unique(units))) < _MIN_HOLDOUT_GROUPS:
        return f"Only {groups} groups were held out, so the score and its interval are uncertain."
    if evidence.labels is None:
        return ""
    counts = np.bincount(evidence.test_target, minlength=len(evidence.labels))
    few = [evidence.labels[code] for code in np.flatnonzero(counts < _MIN_CLASS_ROWS).tolist()]
    if not few:
        return ""
    return f"Fewer than {_MIN_CLASS_ROWS} rows of {_names(few)} were held out: their scores are uncertain."


def _many_features(evidence: Evidence) -> str:
    rows, columns = evidence.train.shape
    if columns <= rows:
        return ""
    return f"There are more features ({columns}) than training rows ({rows}): some fit the target by chance."


def _constants(evidence: Evidence) -> str:
    first = evidence.train[0]
    constant = np.ones(len(first), dtype=bool)
    step = max(1, 4_000_000 // len(first))
    for start in range(0, len(evidence.train), step):
        block = evidence.train[start : start + step]
        constant &= ((block == first) | (np.isnan(block) & np.isnan(first))).all(axis=0)
    varying = {source for source, same in zip(evidence.sources, constant, strict=True) if not same}
    names = [source for source in dict.fromkeys(evidence.sources) if source not in varying]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return f"{_names(names)} {verb} the same value in every training row and cannot contribute to the model."


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MAX_NAMES])
    return shown + (f" (and {len(names) - _MAX_NAMES} more)" if len(names) > _MAX_NAMES else "")
