"""The data of a run in memory: a table, its split, and its encoding.

The code of a category is its position among the sorted categories of the training rows (sorted as numbers if
all are numbers). Missing values stay NaN for a model that accepts them. For others, a missing number becomes
the median of the training rows, and a missing category gets the code of an unknown one. For a library that
splits on sets of categories, an unknown category and a missing one have the next two codes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import (
    UNKNOWN,
    CategoryFeature,
    DateFeature,
    Encoder,
    Feature,
    NumberFeature,
    Target,
)
from dmls_core.data.split.random import RowNumbers, split_at_random, split_by_class
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.definitions import Task
from dmls_core.stored_matrix import read_rows


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A feature of a table, or a part of a date.

    Attributes:
        categories: the text of each code if it is a category, else None.
        date: the feature that the column is a part of if it is a date, else None; the parts of one date are
            in the order of ``DateFeature.columns``.
    """

    name: str
    categories: tuple[str, ...] | None = None
    date: DateFeature | None = None


RowLocator = Callable[[int], ValidationIssue]
"""Returns an issue without a message that names file, line and column of a row, given by its index."""


def _nowhere(_row: int) -> ValidationIssue:
    return ValidationIssue("")


@dataclass(frozen=True, slots=True)
class Table:
    """Features and target of all rows that have a target.

    Attributes:
        matrix: float32, shape (n_rows, n_columns): numbers, category codes and parts of dates; NaN if a value
            is missing. It is C-contiguous, or a memory map in column-major order (see ``stored_table``).
        target: shape (n_rows,): class indices (int64, or int32 of a table on disk) for a classifier, values
            (float64) for a regressor.
        labels: the classes as spelled in the data, in the order of their indices; None for a regressor.
        warnings: messages for the user.
        heights: number of rows of each file; () if unknown.
        row_mask: mask of the files' rows that are in the table, shape (sum(heights),); None for all.
        locate_row: names file, line and column of the target of a row.
    """

    columns: tuple[TableColumn, ...]
    matrix: NDArray[np.float32]
    target_name: str
    target: NDArray[np.integer] | NDArray[np.float64]
    labels: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()
    heights: tuple[int, ...] = ()
    row_mask: NDArray[np.bool_] | None = None
    locate_row: RowLocator = _nowhere

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.matrix)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the features in the order of the matrix."""
        return tuple(dict.fromkeys(column.name for column in self.columns))

    def raw(self, rows: NDArray[np.integer]) -> dict[str, list[float | str | None]]:
        """Return rows as raw values: numbers, texts of categories and dates, None if missing.

        ``Encoder.transform`` of the result equals ``encode_table`` of the rows.
        """
        picked = read_rows(self.matrix, rows)
        values: dict[str, list[float | str | None]] = {}
        for position, column in enumerate(self.columns):
            if column.date is None:
                values[column.name] = [_raw_value(column, value) for value in picked[:, position].tolist()]
            elif column.name not in values:
                parts = picked[:, position : position + len(column.date.columns)]
                values[column.name] = _date_texts(parts, column.date)
        return values


def _raw_value(column: TableColumn, value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if column.categories is None else column.categories[int(value)]


def _date_texts(parts: NDArray[np.float32], date: DateFeature) -> list[float | str | None]:
    missing = np.isnan(parts[:, 0])
    days = np.nan_to_num(parts[:, 0]) if date.days else np.zeros(len(parts))
    moments = days.astype(np.int64).astype("datetime64[D]")
    if date.times:
        moments = moments.astype("datetime64[s]") + np.rint(np.nan_to_num(parts[:, -1]) * 3600).astype(
            np.int64
        )
    texts = np.datetime_as_string(moments).tolist()
    if not date.days:
        texts = [text.partition("T")[2] for text in texts]
    return [None if absent else text for absent, text in zip(missing.tolist(), texts, strict=True)]


Split = Literal["stratified", "random", "time"]


def split_holdout(
    target: NDArray[np.integer] | NDArray[np.float64],
    *,
    holdout: float,
    split: Split,
    seed: int,
    task: Task,
    labels: tuple[str, ...] | None = None,
    folds: int = 2,
    scored: int = 1,
    locate_row: RowLocator = _nowhere,
) -> tuple[RowNumbers, RowNumbers]:
    """Split the rows. The same arguments give the same split on every machine.

    Args:
        target: class indices or values, shape (n_rows,).
        holdout: fraction of the rows to hold out, between 0 and 1.
        split: ``stratified`` keeps the fraction of each class; ``random`` ignores the target.
        seed: seed of the shuffle.
        task: classification or regression.
        labels: the classes' names, for messages.
        folds: number of cross-validation folds; the training rows need that many rows of every class.
        scored: number of rows that the metric needs.
        locate_row: names file, line and column of a row's target, for messages.

    Returns:
        Indices of the training rows and of the held-out rows, each in random order.

    Raises:
        DataError: there are too few rows, in total or of a class.
        ValueError: the split is ``time``, or ``stratified`` for a regressor.
    """
    if split == "time" or (split == "stratified" and task != "classification"):
        raise ValueError(f"cannot split {task} data by {split!r}")
    held_out = check_row_counts(
        target, holdout=holdout, split=split, labels=labels, folds=folds, scored=scored, locate_row=locate_row
    )
    if split == "stratified":
        train, test = split_by_class(target.astype(np.int32, copy=False), held_out, seed)
    else:
        train, test = split_at_random(len(target), held_out, seed)
    if task == "classification":
        check_classes(target, train, labels, folds, locate_row, " left to train on")
    return train, test


def check_row_counts(
    target: NDArray[np.integer] | NDArray[np.float64],
    *,
    holdout: float,
    split: Split,
    labels: tuple[str, ...] | None = None,
    folds: int = 2,
    scored: int = 1,
    locate_row: RowLocator = _nowhere,
) -> int:
    """Return the number of rows to hold out; raise ``DataError`` for too few rows, as ``split_holdout``."""
    rows, held_out = len(target), int(np.ceil(len(target) * holdout))

    def enough(rows: int) -> bool:
        held_out = int(np.ceil(rows * holdout))
        return held_out >= scored and rows - held_out >= folds * scored

    if not enough(rows):
        raise DataError(
            ValidationIssue(
                f"the data has too few rows to hold out {holdout:.0%} and cross-validate on the rest",
                key=locate_row(0).key if rows else "",
                found=f"{rows} rows",
                expected=f"at least {next(filter(enough, itertools.count(rows)))} rows",
                hint="add rows",
            )
        )
    if split == "stratified":
        counts = check_classes(target, slice(None), labels, folds + 1, locate_row)
        if held_out < len(counts) or rows - held_out < len(counts):
            raise DataError(
                ValidationIssue(
                    "too few rows: each side of the split needs one per class",
                    key="evaluation.holdout",
                    found=f"{held_out} of {rows} rows for {len(counts)} classes",
                    expected=f"at least {len(counts)} rows on each side",
                    hint="change the holdout, or add rows",
                )
            )
    return held_out


def check_classes(
    target: NDArray[Any],
    rows: NDArray[np.integer] | slice,
    labels: tuple[str, ...] | None,
    least: int,
    locate_row: RowLocator,
    where: str = "",
) -> NDArray[np.int64]:
    """Return the number of ``rows`` of each class; raise ``DataError`` if one has too few."""
    counts = np.bincount(target[rows].astype(np.int64, copy=False), minlength=len(labels or ()))
    issues = [
        replace(
            locate_row(int(np.argmax(target == index))) if (target == index).any() else ValidationIssue(""),
            message=f"class {labels[index] if labels else index!r} has too few rows{where}",
            found=f"{counts[index]} rows",
            expected=f"at least {least} rows",
            hint="add rows of that class, remove the class, or lower [search] folds; "
            "if the target is a number, use a regressor",
        )
        for index in np.flatnonzero(counts < least).tolist()
    ]
    if issues:
        raise DataError(issues)
    return counts


_BLOCK = 65_536
"""Rows that are encoded at a time."""

_COLUMNS = 16
"""Columns whose medians are computed at a time: reading a C-ordered matrix column by column is slow."""


def fit_encoder(
    table: Table,
    rows: NDArray[np.integer],
    *,
    fill_missing: bool,
    native_categories: bool = False,
    marks: tuple[str, ...] = (),
    not_missing: tuple[str, ...] = (),
) -> Encoder:
    """Fit an encoder on ``rows``, the indices of the training rows; no other row is used.

    ``fill_missing`` is for a model that cannot handle missing values. With ``native_categories``, the codes
    after those of the k categories are k for an unknown one and k + 1 for a missing one, and never NaN.
    ``marks`` are those of missing values in ``[data]``, ``not_missing`` its texts that are categories.
    """
    fills = _medians(table, rows) if fill_missing else {}
    features: list[Feature] = []
    for position, column in enumerate(table.columns):
        if column.date is not None:
            if not features or features[-1].name != column.name:
                parts = range(position, position + len(column.date.columns))
                fill = tuple(fills[part] for part in parts) if fill_missing else None
                features.append(replace(column.date, fill=fill, marks=marks))
            continue
        if column.categories is None:
            features.append(NumberFeature(column.name, fills.get(position), marks))
            continue
        codes = table.matrix[rows, position]
        present = np.unique(codes[~np.isnan(codes)]).astype(
            np.int64
        )  # in sorted order, as the table's codes are
        categories = tuple(column.categories[code] for code in present.tolist())
        if native_categories:
            unknown, missing = float(len(categories)), float(len(categories) + 1)
        else:
            unknown, missing = UNKNOWN, UNKNOWN if fill_missing else math.nan
        features.append(CategoryFeature(column.name, categories, missing, unknown, marks, not_missing))
    return Encoder(tuple(features), Target(table.target_name, table.labels))


def _medians(table: Table, rows: NDArray[np.integer]) -> dict[int, float]:
    """Return the (lower) median of each column of numbers, by position; 0 for a column without values."""
    medians = {}
    step = 1 if table.matrix.flags.f_contiguous else _COLUMNS
    for start in range(0, len(table.columns), step):
        block = table.matrix[:, start : start + step][rows].T.copy()
        for position, values in enumerate(block, start):
            if table.columns[position].categories is None:
                present = values[~np.isnan(values)]
                middle = (present.size - 1) // 2
                medians[position] = float(np.partition(present, middle)[middle]) if present.size else 0.0
    return medians


def encode_table(encoder: Encoder, table: Table, rows: NDArray[np.integer]) -> NDArray[np.float32]:
    """Encode rows, given by index, as float32, C-contiguous, of shape (len(rows), n_columns).

    The result equals ``encoder.transform(table.raw(rows))``, but is computed in float32 throughout.

    Raises:
        ValueError: table and encoder have different features.
    """
    matrix: NDArray[np.float32] = read_rows(table.matrix, rows)
    encode_matrix(encoder, table, matrix)
    return matrix


def encode_in_place(
    encoder: Encoder, table: Table, train: NDArray[np.integer], test: NDArray[np.integer]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Encode rows in the memory of the table's matrix, which loses its content; see ``encode_table``.

    ``train`` and ``test`` are indices of different rows; ``train`` must be ascending.

    Raises:
        ValueError: the features differ, ``train`` is not ascending, or there are too many rows.
    """
    count, rows = len(train), len(train) + len(test)
    if rows > table.n_rows or (np.diff(train) <= 0).any():
        raise ValueError("the rows are not in ascending order, or more than the table has")
    matrix = table.matrix[:rows]
    held = table.matrix[test]
    for start in range(0, count, _BLOCK):
        # Rows only move up, so no row is overwritten before it has moved.
        matrix[start : min(start + _BLOCK, count)] = table.matrix[train[start : start + _BLOCK]]
    matrix[count:] = held
    del held
    encode_matrix(encoder, table, matrix)
    return matrix[:count], matrix[count:]


def encode_matrix(encoder: Encoder, table: Table, matrix: NDArray[np.float32]) -> None:
    """Replace the table's codes and missing values in ``matrix`` by the encoder's, in place.

    Raises:
        ValueError: table and encoder have different features.
    """
    features = encoder.column_features
    if [feature.name for feature in features] != [column.name for column in table.columns]:
        raise ValueError("table and encoder have different features")
    codes = {
        position: _codes(feature, column.categories or ())
        for position, (feature, column) in enumerate(zip(features, table.columns, strict=True))
        if isinstance(feature, CategoryFeature)
    }
    fills = np.array([fill for feature in encoder.features for fill in _fills(feature)], dtype=np.float32)
    if matrix.flags.c_contiguous:
        parts = [slice(None)]
    else:  # a file with one column after the other: most columns of numbers stay as they are
        filled = np.flatnonzero(~np.isnan(fills)).tolist()
        parts = [slice(at, at + 1) for at in sorted({*codes, *filled})]
    for part in parts:
        for start in range(0, len(matrix), _BLOCK):  # in blocks: a second matrix would need as much memory
            _encode_block(matrix[start : start + _BLOCK, part], part.start or 0, codes, fills[part])


def _encode_block(
    block: NDArray[np.float32], first: int, codes: dict[int, NDArray[np.float32]], fills: NDArray[np.float32]
) -> None:
    for position in range(block.shape[1]):
        if (new := codes.get(first + position)) is not None:
            # NaN is -1 here, which picks the last entry: the code of a missing category.
            block[:, position] = new[np.nan_to_num(block[:, position], nan=-1.0).astype(np.int64)]
    np.copyto(block, fills, where=np.isnan(block) & ~np.isnan(fills))


def _fills(feature: Feature) -> tuple[float, ...]:
    """Return what replaces a missing value in each column of a feature; NaN if nothing does."""
    if isinstance(feature, NumberFeature):
        return (math.nan if feature.fill is None else feature.fill,)
    if isinstance(feature, DateFeature) and feature.fill is not None:
        return feature.fill
    return (math.nan,) * len(feature.columns)


def _codes(feature: CategoryFeature, categories: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the encoder's code for each code of the table, and the code of a missing value as last entry."""
    code_of = {text: float(code) for code, text in enumerate(feature.categories)}
    codes: NDArray[np.float32] = np.array(
        [*(code_of.get(text, feature.unknown) for text in categories), feature.missing], dtype=np.float32
    )
    return codes
