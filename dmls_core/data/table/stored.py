"""Read data files that are larger than memory into a table whose matrix is in a file.

CSV files become Parquet in one pass, then each column is read, checked and encoded as in memory, a few
columns at a time. So memory holds some bytes per row, but never all columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.formats.data_files import ColumnIssue, DataFiles, locate_issues
from dmls_core.data.formats.parquet_source import reading
from dmls_core.data.table.columns import DistinctTexts, read_target
from dmls_core.data.table.reader import convert_column, missing_target, read_schema, read_type
from dmls_core.data.table.table import Table, TableColumn
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns
from dmls_core.spec.definitions import Task

COLUMN_BYTES = 32 << 20
"""Size of the columns that are read at a time, as float32."""


def store_table(
    paths: Sequence[Path],
    columns: Columns,
    task: Task,
    folder: Path,
    *,
    data_format: str | None = None,
    not_missing: Collection[str] = (),
) -> Table:
    """Read a table as ``read_table`` does; its matrix is a memory map of a file in the new ``folder``.

    The matrix can be written, and has column-major order.

    Raises:
        DataError: as for ``read_table``.
    """
    limits = DataLimits.from_environment()
    files = DataFiles(paths, data_format, limits)
    roles, column_types = read_schema(files, columns, limits)
    types = {name: read_type(name, column_types[name], roles, task) for name in roles.used}
    folder.mkdir(parents=True)
    stored = files.store(types, folder)

    def read(names: Sequence[str]) -> pl.DataFrame:
        return _read(files, stored, {name: types[name] for name in names})

    series = read([roles.target]).to_series()
    target = read_target(series, task, limits, not_missing)
    texts = DistinctTexts.missing(series, not_missing)
    del series
    row_mask = None
    if not isinstance(target, ColumnIssue) and target[0].null_count():
        row_mask = target[0].is_not_null()
    step = max(1, COLUMN_BYTES // (4 * sum(files.heights)))
    table_columns: list[TableColumn] = []
    issues: list[ColumnIssue] = []
    path = folder / "matrix"
    with path.open("wb") as file:
        for start in range(0, len(roles.features), step):
            names = roles.features[start : start + step]
            frame = read(names)
            for name in names:
                parts = convert_column(
                    frame.drop_in_place(name),
                    column_types[name],
                    roles,
                    files,
                    limits,
                    not_missing=not_missing,
                )
                if isinstance(parts, ColumnIssue):
                    issues.append(parts)
                    continue
                for column, values in parts:
                    table_columns.append(column)
                    file.write(_numbers(values, row_mask).data)
    if isinstance(target, ColumnIssue):
        issues.append(target)
    if issues or isinstance(target, ColumnIssue):
        raise DataError(locate_issues(issues, files, limits.issues, listed=bool(columns.features)))
    values, labels = target
    warnings: tuple[str, ...] = ()
    if row_mask is not None:
        warnings = _left_out(values, stored, texts)
        values = values.filter(row_mask)
    return Table(
        columns=tuple(table_columns),
        matrix=np.memmap(path, np.float32, "r+", shape=(len(values), len(table_columns)), order="F"),
        target_name=columns.target,
        target=(values.cast(pl.Int32) if labels else values).to_numpy(),
        labels=labels,
        warnings=warnings,
        heights=files.heights,
        row_mask=None if row_mask is None else row_mask.to_numpy(),
    )


def _read(files: DataFiles, stored: Sequence[pl.LazyFrame], types: dict[str, pl.DataType]) -> pl.DataFrame:
    """Read columns of all files; if one file has text in place of numbers, the column is text."""
    frames = []
    for source, scan in zip(files.sources, stored, strict=True):
        with reading(source.path):
            frames.append(scan.select(list(types)).collect(engine="streaming"))
    dtypes = {
        name: pl.String() if dtype.is_numeric() and pl.String in {f[name].dtype for f in frames} else dtype
        for name, dtype in types.items()
    }
    casts = [pl.col(name).cast(dtype) for name, dtype in dtypes.items()]
    return pl.concat([frame.select(casts) for frame in frames])


def _numbers(values: pl.Series, row_mask: pl.Series | None) -> NDArray[np.float32]:
    chosen = values if row_mask is None else values.filter(row_mask)
    numbers: NDArray[np.float32] = chosen.cast(pl.Float32).fill_null(math.nan).to_numpy()
    return numbers


def _left_out(target: pl.Series, stored: Sequence[pl.LazyFrame], texts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the warning about the rows without a target, those without any value aside."""
    blank = pl.all_horizontal(pl.all().is_null()).sum()
    empty = sum(int(scan.select(blank).collect(engine="streaming").item()) for scan in stored)
    if dropped := target.null_count() - empty:
        return (missing_target(dropped, len(target) - empty, texts),)
    return ()
