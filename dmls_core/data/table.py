"""The data of a run as it is held in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A feature of a table.

    Attributes:
        name: the column, as the header spells it.
        categories: the text of each code if the feature is a category, else None.
    """

    name: str
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Features and target of all rows that have a target.

    Attributes:
        columns: the features.
        matrix: float32, C-contiguous, shape (n_rows, n_features): numbers, codes of categories; NaN where a
            value is missing.
        target_name: the column to predict.
        target: shape (n_rows,): class indices (int64) for a classifier, values (float64) for a regressor.
        labels: the classes as the data spells them, in the order of their indices; None for a regressor.
        warnings: what the user should know, in plain words.
        heights: rows that each file holds, in order; () where that was not told.
        kept: which of those rows are here, shape (sum(heights),); None: all.
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
        """Number of rows."""
        return len(self.matrix)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features in the order of the matrix."""
        return tuple(column.name for column in self.columns)

    def raw(self, rows: NDArray[np.integer]) -> dict[str, list[float | str | None]]:
        """Return rows as a user would write them: numbers, texts of categories, None for missing.

        An encoder's ``transform`` takes this and gives what ``encode_table`` gives for the rows.
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
