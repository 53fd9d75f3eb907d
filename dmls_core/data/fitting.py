"""Fit an encoder on the training rows of a table, and encode the rows of a table.

A category's code is its position among the categories that the training rows hold, sorted (as numbers if all
are numbers). A missing number becomes the training rows' median where the model cannot take missing values,
and stays NaN where it can; a missing category becomes NaN likewise, or the code of an unknown one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import UNKNOWN, CategoryFeature, Encoder, NumberFeature, Target
from dmls_core.data.table import Table

_BLOCK = 65_536
"""Rows encoded at a time."""

_COLUMNS = 16
"""Columns whose medians are found at a time: reading a matrix of rows column by column is slow."""


def fit_encoder(table: Table, rows: NDArray[np.integer], *, fill_missing: bool) -> Encoder:
    """Fit an encoder.

    Args:
        table: the data.
        rows: indices of the training rows; nothing is learnt from any other.
        fill_missing: whether the model needs a number in place of every missing value.
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
    """Return the median (the lower one of two) of each column of numbers, by its position.

    A column without a single value in these rows can tell a model nothing: any number fills it.
    """
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
    """Encode rows of a table, as ``encoder.transform(table.raw(rows))`` does but without leaving float32.

    Args:
        encoder: fitted on this table or on one with the same features.
        table: the data.
        rows: indices of the rows.

    Returns:
        float32, C-contiguous, of shape (len(rows), n_features).

    Raises:
        ValueError: the table's features are not the encoder's.
    """
    matrix: NDArray[np.float32] = table.matrix[rows]
    _encode(encoder, table, matrix)
    return matrix


def encode_in_place(
    encoder: Encoder, table: Table, train: NDArray[np.integer], test: NDArray[np.integer]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Encode rows of a table that nobody needs any more: they take the place of its own.

    Args:
        encoder: as for ``encode_table``.
        table: the data; what its matrix holds afterwards is not said.
        train: indices of some rows, ascending.
        test: indices of others, in any order.

    Returns:
        What ``encode_table`` returns for both, one after the other in the memory of the table's matrix.

    Raises:
        ValueError: the table's features are not the encoder's, or the rows are not in order, or too many.
    """
    count, rows = len(train), len(train) + len(test)
    if rows > table.n_rows or (np.diff(train) <= 0).any():
        raise ValueError("the rows are not in ascending order, or more than the table has")
    matrix = table.matrix[:rows]
    held = table.matrix[test]
    for start in range(0, count, _BLOCK):
        # Rows only move up, so none is overwritten before it has moved.
        matrix[start : min(start + _BLOCK, count)] = table.matrix[train[start : start + _BLOCK]]
    matrix[count:] = held
    del held
    _encode(encoder, table, matrix)
    return matrix[:count], matrix[count:]


def _encode(encoder: Encoder, table: Table, matrix: NDArray[np.float32]) -> None:
    """Replace the table's codes and missing values by the encoder's, in rows of the table."""
    if table.feature_names != encoder.feature_names:
        raise ValueError("the table's features are not the encoder's")
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
    for start in range(0, len(matrix), _BLOCK):  # in place and in blocks: no second matrix is made
        block = matrix[start : start + _BLOCK]
        for position, new in codes.items():
            # NaN is -1 here, which picks the last entry: the code of a missing category.
            old = np.nan_to_num(block[:, position], nan=-1.0).astype(np.int64)
            block[:, position] = new[old]
        np.copyto(block, fills, where=np.isnan(block) & ~np.isnan(fills))


def _codes(feature: CategoryFeature, categories: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the encoder's code for each code of the table, and for a missing value at the end."""
    known = {text: float(code) for code, text in enumerate(feature.categories)}
    codes: NDArray[np.float32] = np.array(
        [*(known.get(text, feature.unknown) for text in categories), feature.missing], dtype=np.float32
    )
    return codes
