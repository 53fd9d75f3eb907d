"""The data of a run in memory, and its split into training rows and held-out rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.definitions import Task


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A feature of a table. ``categories`` has the text of each code if it is a category, else None."""

    name: str
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Features and target of all rows that have a target.

    Attributes:
        matrix: float32, C-contiguous, shape (n_rows, n_features): numbers and category codes; NaN if a
            value is missing.
        target: shape (n_rows,): class indices (int64) for a classifier, values (float64) for a regressor.
        labels: the classes as spelled in the data, in the order of their indices; None for a regressor.
        warnings: messages for the user.
        heights: number of rows of each file; () if unknown.
        kept: mask of the files' rows that are in the table, shape (sum(heights),); None for all.
    """

    columns: tuple[TableColumn, ...]
    matrix: NDArray[np.float32]
    target_name: str
    target: NDArray[np.int64] | NDArray[np.float64]
    labels: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()
    heights: tuple[int, ...] = ()
    kept: NDArray[np.bool_] | None = None

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.matrix)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the features in the order of the matrix."""
        return tuple(column.name for column in self.columns)

    def raw(self, rows: NDArray[np.integer]) -> dict[str, list[float | str | None]]:
        """Return rows as raw values: numbers, texts of categories, None if missing.

        ``Encoder.transform`` of the result equals ``encode_table`` of the rows.
        """
        picked = self.matrix[rows]
        return {
            column.name: [_raw_value(column, value) for value in picked[:, position].tolist()]
            for position, column in enumerate(self.columns)
        }


def _raw_value(column: TableColumn, value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if column.categories is None else column.categories[int(value)]


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
