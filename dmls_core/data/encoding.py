"""Fit an encoder on the training rows of a table, and encode rows with it.

The code of a category is its position among the sorted categories of the training rows (sorted as numbers if
all are numbers). Missing values stay NaN for a model that accepts them. For others, a missing number becomes
the median of the training rows, and a missing category gets the code of an unknown one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import UNKNOWN, CategoryFeature, Encoder, NumberFeature, Target
from dmls_core.data.table import Table

_BLOCK = 65_536
"""Rows that are encoded at a time."""

_COLUMNS = 16
"""Columns whose medians are computed at a time: reading a C-ordered matrix column by column is slow."""


def fit_encoder(table: Table, rows: NDArray[np.integer], *, fill_missing: bool) -> Encoder:
    """Fit an encoder on ``rows``, the indices of the training rows; no other row is used.

    ``fill_missing`` is for a model that cannot handle missing values.
    """
    fills = _medians(table, rows) if fill_missing else {}
    features: list[NumberFeature | CategoryFeature] = []
    for position, column in enumerate(table.columns):
        if column.categories is None:
            features.append(NumberFeature(column.name, fills.get(position)))
            continue
        codes = table.matrix[rows, position]
        seen = np.unique(codes[~np.isnan(codes)]).astype(
            np.int64
        )  # in sorted order, as the table's codes are
        missing = UNKNOWN if fill_missing else math.nan
        categories = tuple(column.categories[code] for code in seen.tolist())
        features.append(CategoryFeature(column.name, categories, missing))
    return Encoder(tuple(features), Target(table.target_name, table.labels))


def _medians(table: Table, rows: NDArray[np.integer]) -> dict[int, float]:
    """Return the (lower) median of each column of numbers, by position; 0 for a column without values."""
    medians = {}
    for start in range(0, len(table.columns), _COLUMNS):
        block = table.matrix[:, start : start + _COLUMNS][rows].T.copy()
        for position, values in enumerate(block, start):
            if table.columns[position].categories is None:
                present = values[~np.isnan(values)]
                middle = (present.size - 1) // 2
                medians[position] = float(np.partition(present, middle)[middle]) if present.size else 0.0
    return medians


def encode_table(encoder: Encoder, table: Table, rows: NDArray[np.integer]) -> NDArray[np.float32]:
    """Encode rows, given by index, as float32, C-contiguous, of shape (len(rows), n_features).

    The result equals ``encoder.transform(table.raw(rows))``, but is computed in float32 throughout.

    Raises:
        ValueError: table and encoder have different features.
    """
    matrix: NDArray[np.float32] = table.matrix[rows]
    _encode(encoder, table, matrix)
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
    _encode(encoder, table, matrix)
    return matrix[:count], matrix[count:]


def _encode(encoder: Encoder, table: Table, matrix: NDArray[np.float32]) -> None:
    """Replace the table's codes and missing values by the encoder's, in place."""
    if table.feature_names != encoder.feature_names:
        raise ValueError("table and encoder have different features")
    codes = {
        position: _codes(feature, column.categories or ())
        for position, (feature, column) in enumerate(zip(encoder.features, table.columns, strict=True))
        if isinstance(feature, CategoryFeature)
    }
    fills = np.array(
        [
            feature.fill if isinstance(feature, NumberFeature) and feature.fill is not None else math.nan
            for feature in encoder.features
        ],
        dtype=np.float32,
    )
    for start in range(0, len(matrix), _BLOCK):  # in blocks: a second matrix would need as much memory again
        block = matrix[start : start + _BLOCK]
        for position, new in codes.items():
            # NaN is -1 here, which picks the last entry: the code of a missing category.
            old = np.nan_to_num(block[:, position], nan=-1.0).astype(np.int64)
            block[:, position] = new[old]
        np.copyto(block, fills, where=np.isnan(block) & ~np.isnan(fills))


def _codes(feature: CategoryFeature, categories: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the encoder's code for each code of the table, and the code of a missing value as last entry."""
    known = {text: float(code) for code, text in enumerate(feature.categories)}
    codes: NDArray[np.float32] = np.array(
        [*(known.get(text, feature.unknown) for text in categories), feature.missing], dtype=np.float32
    )
    return codes
