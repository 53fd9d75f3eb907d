"""Warnings about a model's evaluation: leakage, duplicate rows, imbalance, small holdouts and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.grouping import hash_rows
from dmls_core.models.metrics import compute
from dmls_core.spec.definitions import Task
from dmls_core.stored_matrix import Matrix

RARE_SHARE = 0.05

IMBALANCE_RATIO = 10
"""Smallest ratio between the largest class and a rare one for a warning."""

INSENSITIVE_METRICS = ("accuracy",)
"""Metrics on which rare classes have little effect."""

MIN_HOLDOUT_ROWS = 30
MIN_HOLDOUT_GROUPS = 10
MIN_CLASS_ROWS = 5
MAX_DUPLICATES = 0.05
MAX_NAMES = 5

LEAK_FEATURES = 25
"""Features checked for leakage, the most important ones: a leaking feature is important to the model."""

LEAK_ROWS = 5_000

MIN_LEAK_ROWS = 50

LEAK_FOLDS = 5
LEAK_TREE_LEAVES = 16

PERFECT_ERROR = 0.005
"""Share of the error below which a feature leaks, whatever the other features achieve."""

SMALL_ERROR: Mapping[Task, float] = {"classification": 0.05, "regression": 0.02}
"""Share of the error below which a feature leaks if all others are much worse."""

LEAK_RATIO = 4.0
"""How many times larger the error of every other feature must then be: in natural data several features carry
about the same information (in iris two of four come close to a perfect prediction), but a leak stands out."""


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

    @property
    def ranked(self) -> list[int]:
        """Positions of the features that the model uses, most important first."""
        order: list[int] = np.argsort(-self.importances, kind="stable").tolist()
        return [column for column in order if self.importances[column] > 0]


def find_warnings(evidence: Evidence) -> list[str]:
    """Return the warnings about an evaluation, most serious first."""
    found = [_leakage(evidence), _duplicates(evidence), _no_better(evidence), _optimistic(evidence)]
    found += [_imbalance(evidence), _few_rows(evidence), _many_features(evidence), _constants(evidence)]
    return [message for message in found if message]


def baseline_score(evidence: Evidence) -> float:
    """Return the score of always predicting the class shares, or the mean, of the training rows."""
    rows, weights = len(evidence.test_target), evidence.test_weights
    if evidence.labels is None:
        mean = np.average(evidence.train_target, weights=evidence.train_weights)
        return compute(evidence.metric, evidence.test_target, np.full(rows, mean), weights)
    counts = np.bincount(evidence.train_target, evidence.train_weights, minlength=len(evidence.labels))
    shares = np.tile(counts / counts.sum(), (rows, 1))
    return compute(evidence.metric, evidence.test_target, shares, weights)


def _leakage(evidence: Evidence) -> str:
    found = leaking_features(
        evidence.task, evidence.train, evidence.train_target, evidence.ranked, seed=evidence.seed
    )
    if not found:
        return ""
    names = _names([evidence.features[column] for column in found])
    subject = names if len(found) == 1 else f"Each of {names}"
    return (
        f"{subject} alone nearly determines the target. If it is known only after the event, or derived from "
        "the target, exclude it with [columns] drop: the score would not hold in production."
    )


def leaking_features(
    task: Task, features: NDArray[np.float32], target: NDArray[Any], columns: Sequence[int], *, seed: int
) -> list[int]:
    """Return the columns that predict the target on their own, in their order.

    For each column a small decision tree is cross-validated. Its error relative to the error without any
    feature (balanced for classes, squared for values) decides. ``features``: (n_rows, n_features) training
    rows. ``columns``: positions to check, most important first.
    """
    if len(target) < MIN_LEAK_ROWS:
        return []
    picked = np.random.default_rng(seed).permutation(len(target))[:LEAK_ROWS]
    known = target[picked]
    errors = {
        column: _relative_error(task, features[picked, column], known) for column in columns[:LEAK_FEATURES]
    }
    return [
        column
        for column, error in errors.items()
        if error <= PERFECT_ERROR
        or (error <= SMALL_ERROR[task] and LEAK_RATIO * error <= _least_other(errors, column))
    ]


def _least_other(errors: Mapping[int, float], column: int) -> float:
    return min((error for other, error in errors.items() if other != column), default=1.0)


def _relative_error(task: Task, values: NDArray[np.float32], target: NDArray[Any]) -> float:
    """Return the error of a tree on one column: 0 for a perfect prediction, 1 for none."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    column, folds = values[:, None], np.arange(len(target)) % LEAK_FOLDS
    found = np.empty(len(target))
    for fold in range(LEAK_FOLDS):
        held = folds == fold
        tree = (
            DecisionTreeClassifier(max_leaf_nodes=LEAK_TREE_LEAVES, class_weight="balanced", random_state=0)
            if task == "classification"
            else DecisionTreeRegressor(max_leaf_nodes=LEAK_TREE_LEAVES, random_state=0)
        )
        found[held] = tree.fit(column[~held], target[~held]).predict(column[held])
    if task == "regression":
        variance = float(np.var(target))
        return float(np.mean((found - target) ** 2)) / variance if variance > 0 else 1.0
    codes = np.unique(target)
    missed = np.mean([(found[target == code] != code).mean() for code in codes])
    return float(missed) / (1 - 1 / len(codes)) if len(codes) > 1 else 1.0


def _duplicates(evidence: Evidence) -> str:
    duplicates = int(np.isin(hash_rows(evidence.test), hash_rows(evidence.train)).sum())
    if duplicates < 3 or duplicates <= MAX_DUPLICATES * len(evidence.test):
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
    if evidence.labels is None or evidence.metric not in INSENSITIVE_METRICS:
        return ""
    counts = np.bincount(
        np.concatenate([evidence.train_target, evidence.test_target]), minlength=len(evidence.labels)
    )
    rarest = int(counts.argmin())
    if counts[rarest] >= RARE_SHARE * counts.sum() or IMBALANCE_RATIO * counts[rarest] > counts.max():
        return ""
    return (
        f"The classes are imbalanced: {evidence.labels[rarest]} has {counts[rarest]} of {counts.sum()} rows, "
        f"with little effect on {evidence.metric}. Consider balanced_accuracy or f1_macro."
    )


def _few_rows(evidence: Evidence) -> str:
    held = len(evidence.test)
    if held < MIN_HOLDOUT_ROWS:
        return f"Only {held} rows were held out, so the score is uncertain (see its interval)."
    units = evidence.units if evidence.grouped else None
    if units is not None and (groups := len(np.unique(units))) < MIN_HOLDOUT_GROUPS:
        return f"Only {groups} groups were held out, so the score and its interval are uncertain."
    if evidence.labels is None:
        return ""
    counts = np.bincount(evidence.test_target, minlength=len(evidence.labels))
    few = [evidence.labels[code] for code in np.flatnonzero(counts < MIN_CLASS_ROWS).tolist()]
    if not few:
        return ""
    return f"Fewer than {MIN_CLASS_ROWS} rows of {_names(few)} were held out: their scores are uncertain."


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
    names = [evidence.features[column] for column in np.flatnonzero(constant).tolist()]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return f"{_names(names)} {verb} the same value in every training row and cannot contribute to the model."


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:MAX_NAMES])
    return shown + (f" (and {len(names) - MAX_NAMES} more)" if len(names) > MAX_NAMES else "")
