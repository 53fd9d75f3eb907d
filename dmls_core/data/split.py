"""Split the rows into training rows and held-out rows for the final score."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.definitions import Task

Split = Literal["stratified", "random", "time"]


def split_holdout(
    target: NDArray[np.int64] | NDArray[np.float64],
    *,
    holdout: float,
    split: Split,
    seed: int,
    task: Task,
    labels: tuple[str, ...] | None = None,
    folds: int = 2,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split the rows. The same arguments give the same split on every machine.

    Args:
        target: class indices or values, shape (n_rows,).
        holdout: fraction of the rows to hold out, between 0 and 1.
        split: ``stratified`` keeps the fraction of each class; ``random`` ignores the target.
        seed: seed of the shuffle.
        task: classification or regression.
        labels: the classes' names, for messages.
        folds: number of cross-validation folds; the training rows need that many rows of every class.

    Returns:
        Indices of the training rows and of the held-out rows, int64, each in random order.

    Raises:
        DataError: there are too few rows, in total or of a class.
        ValueError: the split is ``time``, or ``stratified`` for a regressor.
    """
    from sklearn.model_selection import train_test_split

    if split == "time" or (split == "stratified" and task != "classification"):
        raise ValueError(f"cannot split {task} data by {split!r}")
    rows = np.arange(len(target), dtype=np.int64)
    held_out = int(np.ceil(len(rows) * holdout))
    if held_out < 1 or len(rows) - held_out < folds:
        raise DataError(_too_few_rows(len(rows), folds, holdout))
    stratify = None
    if split == "stratified":
        counts = np.bincount(target.astype(np.int64), minlength=len(labels or ()))
        if issues := _too_few_of_a_class(counts, labels, folds + 1):
            raise DataError(issues)
        if held_out < len(counts) or len(rows) - held_out < len(counts):
            raise DataError(
                ValidationIssue(
                    "leaves fewer rows to train or score on than the target has classes",
                    key="evaluation.holdout",
                    found=f"{held_out} of {len(rows)} rows for {len(counts)} classes",
                    expected=f"at least {len(counts)} rows on each side",
                    hint="change the holdout, or add rows",
                )
            )
        stratify = target
    train, test = train_test_split(rows, test_size=held_out, random_state=seed, stratify=stratify)
    if task == "classification":
        counts = np.bincount(target[train].astype(np.int64), minlength=len(labels or ()))
        if issues := _too_few_of_a_class(counts, labels, folds, where=" left to train on"):
            raise DataError(issues)
    return train, test


def _too_few_rows(rows: int, folds: int, holdout: float) -> ValidationIssue:
    return ValidationIssue(
        f"the data has too few rows to hold out {holdout:.0%} and cross-validate on the rest",
        found=f"{rows} rows",
        expected=f"at least {int(np.ceil(max(folds / (1 - holdout), folds + 1)))} rows",
        hint="add rows",
    )


def _too_few_of_a_class(
    counts: NDArray[np.int64], labels: tuple[str, ...] | None, least: int, where: str = ""
) -> list[ValidationIssue]:
    return [
        ValidationIssue(
            f"class {labels[index] if labels else index!r} has too few rows{where}",
            found=f"{counts[index]} rows",
            expected=f"at least {least} rows",
            hint="add rows of that class, remove the class, or lower [search] folds; "
            "if the target is a number, use a regressor",
        )
        for index in np.flatnonzero(counts < least).tolist()
    ]
