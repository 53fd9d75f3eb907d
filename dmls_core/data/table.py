"""The data of a run in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
