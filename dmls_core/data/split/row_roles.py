"""The time, the group and the weight of each row: what splits and weighs rows, and is no feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.formats.data_files import ColumnIssue, DataFiles, locate_issues
from dmls_core.data.split.grouping import time_blocks
from dmls_core.data.table.time_filter import read_times
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import Spec


@dataclass(frozen=True, slots=True)
class RowRoles:
    """Roles of rows; each is an array of the shape (n_rows,), or None.

    Attributes:
        times: int64 microseconds since 1970, UTC, of rows that are split by time.
        groups: int64 codes of rows whose groups stay together.
        weights: float64, 0 or more.
    """

    times: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    weights: NDArray[np.float64] | None = None

    @property
    def independent(self) -> bool:
        """Whether any row may be trained on while any other one is scored."""
        return self.times is None and self.groups is None

    def take(self, rows: NDArray[Any]) -> RowRoles:
        """Return the roles of some of the rows."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return RowRoles(**{name: None if values is None else values[rows] for name, values in arrays.items()})

    def units(self) -> NDArray[np.int64] | None:
        """Return the unit of each row that a bootstrap draws as a whole; None if it draws rows.

        These are the groups, or blocks of rows that follow each other in time: as many as each has rows.
        """
        if self.times is None:
            return self.groups
        moments = len(np.unique(self.times))
        return time_blocks(self.times, max(1, min(moments, round(len(self.times) ** 0.5))))


def read_row_roles(
    paths: Sequence[Path], spec: Spec, row_mask: NDArray[np.bool_] | None = None, *, sample: bool = False
) -> RowRoles:
    """Read the roles of rows that the spec uses; without any, no file is opened.

    Args:
        paths: the data files.
        spec: times are read for a split by time only.
        row_mask: mask of the files' rows that count; all if None.
        sample: whether the files are a sample; what further rows could refute does not count then.

    Raises:
        DataError: a value is missing or wrong, or all weights are 0; it has each column's first issue.
    """
    columns, by_time = spec.columns, spec.evaluation.split == "time"
    types: dict[str, pl.DataType] = {}
    if columns.group is not None:
        types[columns.group] = pl.Categorical()
    if columns.weight is not None:
        types[columns.weight] = pl.Float64()
    if not types and not by_time:
        return RowRoles()
    limits = DataLimits.from_environment()
    files = DataFiles(paths, spec.data.format, limits)
    used = slice(None) if row_mask is None else row_mask
    frame = files.read(types or {str(columns.time): pl.Categorical()})
    issues: list[ColumnIssue] = []
    times: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    weights: NDArray[np.float64] | None = None
    if by_time and columns.time is not None:
        series = [
            read_times(source, columns.time, spec.timezone, columns.date_order) for source in files.sources
        ]
        moments = pl.concat(series)
        issues += _missing(columns.time, moments, used, "time")
        times = moments.dt.timestamp("us").fill_null(0).to_numpy()[used]
    if columns.group is not None:
        issues += _missing(columns.group, frame[columns.group], used, "group")
        texts = frame[columns.group].cast(pl.String)
        # In sorted order: the codes of categories depend on what this process has read before.
        group_type = pl.Enum(texts.drop_nulls().unique().sort())
        groups = texts.cast(group_type).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()[used]
    if columns.weight is not None:
        weight_issues = _wrong_weight(frame[columns.weight], columns.weight, used)
        issues += weight_issues
        if not weight_issues:
            weights = frame[columns.weight].cast(pl.Float64).fill_null(0).to_numpy()[used]
            if not weights.any() and not sample:
                expected = "numbers above 0"
                issues.append(ColumnIssue(columns.weight, "has only weights of 0", expected=expected))
    if issues:
        raise DataError(locate_issues(issues, files, limits.issues))
    return RowRoles(times, groups, weights)


def _missing(name: str, values: pl.Series, used: NDArray[np.bool_] | slice, what: str) -> list[ColumnIssue]:
    missing = np.zeros(len(values), np.bool_)
    missing[used] = values.is_null().to_numpy()[used]
    if not missing.any():
        return []
    message = f"has no {what} in {missing.sum():,} rows"
    row, hint = int(missing.argmax()), "fill it in, or remove these rows"
    return [ColumnIssue(name, message, row=row, expected=f"a {what} in every row", hint=hint)]


def _wrong_weight(values: pl.Series, name: str, used: NDArray[np.bool_] | slice) -> list[ColumnIssue]:
    numbers = values if values.dtype.is_numeric() else values.cast(pl.String).cast(pl.Float64, strict=False)
    right = (numbers.is_finite() & (numbers >= 0)).fill_null(value=False).to_numpy()
    wrong = np.zeros(len(values), np.bool_)
    wrong[used] = ~right[used]
    if not wrong.any():
        return []
    message = f"is not a weight in {wrong.sum():,} rows"
    return [ColumnIssue(name, message, row=int(wrong.argmax()), expected="a number, 0 or more, in every row")]
