"""Assign the columns of data files their roles, and read the files into a table; report all issues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.formats.data_files import ColumnIssue, DataFiles, locate_issues
from dmls_core.data.formats.source import ColumnType, DeviceReader, FileSource
from dmls_core.data.moments import DateOrder
from dmls_core.data.table.columns import (
    EXACT_INTEGERS,
    DistinctTexts,
    Feature,
    date_issue,
    find_merged_integers,
    nested_issue,
    read_feature,
    read_target,
)
from dmls_core.data.table.dates import read_date
from dmls_core.data.table.table import Table
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns
from dmls_core.spec.definitions import Task


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The roles of the columns that are read.

    Features are in the order of the spec, or of the file if the spec names none.
    """

    features: tuple[str, ...]
    target: str
    categorical: frozenset[str]
    dates: frozenset[str] = frozenset()
    date_order: DateOrder = "year-first"

    @property
    def used(self) -> tuple[str, ...]:
        """Return all columns that are read."""
        return (*self.features, self.target)


def assign_roles(columns: Columns, names: Sequence[str], file: str, line: int | None = 1) -> ColumnRoles:
    """Match the columns of the spec with ``names``, the columns of the (first) file.

    ``line`` is the line of the header; None if the format has no lines. Raises ``DataError`` if a column of
    the spec is missing, a used column occurs twice, or no feature is left.
    """
    named = {
        "columns.target": (columns.target,),
        "columns.features": columns.features,
        "columns.categorical": columns.categorical,
        "columns.dates": columns.dates,
        "columns.drop": columns.drop,
        "columns.sensitive": columns.sensitive,
        "columns.id": (columns.id,),
        "columns.time": (columns.time,),
        "columns.group": (columns.group,),
        "columns.weight": (columns.weight,),
    }
    counts = Counter(names)
    issues = [
        missing_column(name, names, file, key, line)
        for key, group in named.items()
        for name in group
        if name is not None and name not in counts
    ]
    others = {columns.target, *columns.drop, columns.id, columns.time, columns.group, columns.weight}
    others -= frozenset(columns.dates)
    features = columns.features or tuple(dict.fromkeys(name for name in names if name not in others))
    if not columns.features and "" in features:
        issues.append(
            ValidationIssue(
                f"column {names.index('') + 1} has no name",
                file=file,
                line=line,
                hint="name it, list [columns] features, or write the file without row numbers "
                "(pandas: to_csv(index=False))",
            )
        )
    issues += [
        ValidationIssue(
            "the file has this column more than once",
            file=file,
            line=line,
            key=name,
            hint="rename one of them",
        )
        for name in dict.fromkeys((*features, columns.target))
        if name and counts[name] > 1
    ]
    if not features:
        issues.append(
            ValidationIssue(
                "no column is left as a feature",
                file=file,
                key="columns",
                found=", ".join(names[:20]),
                hint="drop fewer columns",
            )
        )
    if issues:
        raise DataError(issues)
    categorical, dates = frozenset(columns.categorical), frozenset(columns.dates)
    return ColumnRoles(features, columns.target, categorical, dates, columns.date_order)


def missing_column(name: str, names: Sequence[str], file: str, key: str, line: int | None) -> ValidationIssue:
    """Return the issue of a column that is missing in a file."""
    lowered = {column.lower(): column for column in reversed(names) if column}
    close = get_close_matches(name.strip().lower(), lowered, n=1)
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return ValidationIssue(
        f"column {name!r} is not in the data",
        file=file,
        line=line,
        key=key,
        found=shown,
        expected=name,
        hint=f"did you mean {lowered[close[0]]!r}?" if close else f"the data has: {shown}",
    )


_SLICE = 65_536
"""Rows copied to the matrix at a time."""


def read_table(
    paths: Sequence[Path],
    columns: Columns,
    task: Task,
    *,
    data_format: str | None = None,
    not_missing: Collection[str] = (),
    limits: DataLimits | None = None,
    reader: DeviceReader | None = None,
    sample: bool = False,
) -> Table:
    """Read features and target of all rows with a target; the table's warnings count the others.

    Args:
        paths: the data files, concatenated; each must have all columns that are used.
        columns: the spec's ``[columns]``.
        task: classification or regression.
        data_format: ``csv`` or ``parquet``; taken from each file's name if None.
        not_missing: the texts of ``[data] not_missing``.
        limits: those of the settings if None.
        reader: reads the columns that it can on a device; the table is the same.
        sample: the files are a sample: an issue that further rows could refute does not count, and the table
            is empty then.

    Raises:
        DataError: the data does not match the spec or cannot be read; it has each column's first issue and
            line.
    """
    limits = limits or DataLimits.from_environment()
    files = DataFiles(paths, data_format, limits)
    roles, column_types = read_schema(files, columns, limits)
    types = {name: read_type(name, column_types[name], roles, task) for name in roles.used}
    frame = files.read(types, reader)
    issues: list[ColumnIssue] = []
    features: list[Feature] = []
    for name in roles.features:
        parts = convert_column(frame[name], column_types[name], roles, files, limits, not_missing=not_missing)
        issues.append(parts) if isinstance(parts, ColumnIssue) else features.extend(parts)
    target = read_target(frame[roles.target], task, limits, not_missing)
    if isinstance(target, ColumnIssue):
        issues.append(target)
    if certain := [issue for issue in issues if not (sample and issue.refutable)]:
        raise DataError(locate_issues(certain, files, limits.issues, listed=bool(columns.features)))
    if issues or isinstance(target, ColumnIssue):
        return Table((), np.empty((0, 0), np.float32), columns.target, np.empty(0))
    values, labels = target
    encoded = pl.DataFrame([series for _, series in features])
    warnings: tuple[str, ...] = ()
    row_mask: pl.Series | None = None
    if values.null_count():
        empty = int(frame.select(pl.all_horizontal(pl.all().is_null())).to_series().sum())
        if dropped := values.null_count() - empty:
            texts = DistinctTexts.missing(frame[roles.target], not_missing)
            warnings = (missing_target(dropped, len(values) - empty, texts),)
        row_mask = values.is_not_null()
        encoded, values = encoded.filter(row_mask), values.filter(row_mask)
    table_columns = tuple(column for column, _ in features)
    slices = list(encoded.iter_slices(_SLICE))
    del frame, features, encoded  # as large as the matrix: only the slices refer to it now
    return Table(
        columns=table_columns,
        matrix=_matrix(slices),
        target_name=columns.target,
        target=values.to_numpy(),
        labels=labels,
        warnings=warnings,
        heights=files.heights,
        row_mask=None if row_mask is None else row_mask.to_numpy(),
        locate_row=partial(_locate_row, files, columns.target, row_mask),
    )


def missing_target(missing: int, rows: int, texts: Mapping[str, int]) -> str:
    """Return the warning on rows without a target, some of which have ``texts`` that are read as missing."""
    said = ", ".join(f"{count} say {text!r}" for text, count in texts.items())
    return f"{missing} of {rows} rows have no target and were left out{f' ({said})' * bool(said)}"


def _locate_row(files: DataFiles, column: str, row_mask: pl.Series | None, row: int) -> ValidationIssue:
    """Return an issue without a message at the cell of a column, in a row of the table."""
    at = row if row_mask is None else int(row_mask.arg_true()[row])
    return locate_issues([ColumnIssue(column, "", row=at)], files, 1)[0]


def check_schema(paths: Sequence[Path], columns: Columns, *, data_format: str | None = None) -> None:
    """Raise ``DataError`` for what the columns' names and types alone show; see ``read_table``."""
    limits = DataLimits.from_environment()
    files = DataFiles(paths, data_format, limits)
    roles, column_types = read_schema(files, columns, limits)
    dates = [
        date_issue(name)
        for name in roles.features
        if column_types[name] == "time" and name not in roles.categorical | roles.dates
    ]
    if dates:
        raise DataError(locate_issues(dates, files, limits.issues, listed=bool(columns.features)))


def read_schema(
    files: DataFiles, columns: Columns, limits: DataLimits
) -> tuple[ColumnRoles, dict[str, ColumnType]]:
    """Return the roles and the types of the columns that are read; raise ``DataError`` as ``read_table``."""
    roles = _file_roles(files, columns)
    others = (columns.id, columns.time, columns.group, columns.weight)
    files.check_types([*roles.used, *(name for name in others if name)])
    column_types = files.column_types(roles.used)
    if unusable := [
        nested_issue(name) for name, column_type in column_types.items() if column_type == "unusable"
    ]:
        raise DataError(locate_issues(unusable, files, limits.issues, listed=bool(columns.features)))
    return roles, column_types


def _file_roles(files: DataFiles, columns: Columns) -> ColumnRoles:
    first, *others = files.sources
    roles = assign_roles(columns, first.names, first.path.name, first.header_line)
    if issues := [
        _lacking(name, source, first)
        for source in others
        for name in sorted(frozenset(roles.used) - frozenset(source.names), key=roles.used.index)
    ]:
        raise DataError(issues)
    return roles


def _lacking(name: str, source: FileSource, first: FileSource) -> ValidationIssue:
    """Return the issue of a column that the first file has and a further one lacks."""
    issue = missing_column(name, source.names, source.path.name, "columns", source.header_line)
    hint = (
        f"write this file again with the columns of {first.path.name}, or list in [columns] features those "
        "that all files have"
    )
    if issue.hint.startswith("did you mean"):
        hint = f"{issue.hint} {hint}"
    return replace(issue, message=f"{issue.message} of this file, but in {first.path.name}", hint=hint)


def read_type(name: str, column_type: ColumnType, roles: ColumnRoles, task: Task) -> pl.DataType:
    """Return the type as which a column is read."""
    if column_type in ("time", "category", "text") or name in roles.categorical | roles.dates:
        return pl.Categorical()
    if name != roles.target:
        return pl.Float32()
    return pl.Categorical() if task == "classification" or column_type == "truth" else pl.Float64()


def convert_column(
    series: pl.Series,
    column_type: ColumnType,
    roles: ColumnRoles,
    files: DataFiles,
    limits: DataLimits,
    *,
    not_missing: Collection[str],
) -> Sequence[Feature] | ColumnIssue:
    """Convert a column of the files to a feature, or to the parts of a date."""
    if series.name in roles.dates:
        return read_date(series, roles.date_order, roles.used)
    categorical = series.name in roles.categorical or column_type == "category"
    if column_type == "time" and not categorical:
        return date_issue(series.name)
    feature = read_feature(series, limits, categorical=categorical, not_missing=not_missing)
    if column_type == "integer" and not isinstance(feature, ColumnIssue) and feature[0].categories is None:
        largest = max(-float(feature[1].min() or 0), float(feature[1].max() or 0))  # type: ignore[arg-type]
        exact = files.integers(series.name) if largest >= EXACT_INTEGERS else None
        if exact is not None and (issue := find_merged_integers(exact)):
            return issue
    return feature if isinstance(feature, ColumnIssue) else [feature]


def _matrix(slices: list[pl.DataFrame]) -> NDArray[np.float32]:
    """Convert the slices of a frame to a C-contiguous matrix, with NaN for null.

    The list is emptied, so that each slice's memory is free before the next one is copied: frame and matrix
    are never in memory as a whole at the same time.
    """
    rows, columns = sum(part.height for part in slices), slices[0].width if slices else 0
    matrix = np.empty((rows, columns), dtype=np.float32)
    slices.reverse()
    start = 0
    while slices:
        part = slices.pop()
        matrix[start : start + part.height] = part.to_numpy(order="c")
        start += part.height
    return matrix
