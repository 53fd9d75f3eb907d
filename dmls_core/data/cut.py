"""Cut the rows of an interval out of files whose rows say when they were true.

The cut is made before anything else reads the data, and written as files of their own: neither the check
of the data nor the training ever sees another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.csv_source import CsvSource
from dmls_core.data.files import open_source
from dmls_core.data.roles import missing_column
from dmls_core.data.source import Source
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

_FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d %H:%M:%S%.f",
)
_ZONED = ("%Y-%m-%d %H:%M%#z", "%Y-%m-%d %H:%M:%S%.f%#z")


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows are kept.

    Attributes:
        column: tells the time of a row: ISO 8601 text, or a date or time of Parquet.
        since: the first moment; None: from the beginning.
        until: the first moment that is too late.
        timezone: of times that name none.
    """

    column: str
    since: datetime | None
    until: datetime
    timezone: str = "UTC"


def cut_files(
    paths: Sequence[Path], cut: Cut, folder: Path, *, data_format: str | None = None
) -> list[Path | None]:
    """Write the rows of each file that are within the cut.

    A row without a time belongs to no interval and is left out.

    Args:
        paths: the files.
        cut: which rows.
        folder: where the new files go, each in a folder of its own, under its own name.
        data_format: ``csv`` or ``parquet``; told from each file's name if None.

    Returns:
        For each file the new one; None if it has no row within the cut.

    Raises:
        DataError: a file cannot be read, lacks the column or has a text in it that is no time, or no row of
            any file is within the cut.
    """
    limits = DataLimits.from_environment()
    written: list[Path | None] = []
    for number, path in enumerate(paths):
        source = open_source(path, data_format, limits)
        target = folder / str(number) / path.name
        target.parent.mkdir(parents=True)
        written.append(target if _cut(source, cut, target) else None)
    if not any(written):
        since = f"from {_words(cut.since)} " if cut.since else ""
        raise DataError(
            ValidationIssue(
                f"no row is {since}to {_words(cut.until)}",
                key="columns.time",
                file=", ".join(path.name for path in paths[:5]),
                hint="run it for another interval, or widen [data] window",
            )
        )
    return written


def _cut(source: Source, cut: Cut, target: Path) -> int:
    """Write one file's rows and return their number."""
    if cut.column not in source.names:
        raise DataError(
            missing_column(cut.column, source.names, source.path.name, "columns.time", source.header_line)
        )
    kept = _within(_times(_column(source, cut), cut, source), cut)
    if isinstance(source, CsvSource):
        return source.copy_rows(kept, target)
    frame = pl.scan_parquet(source.path, glob=False).filter(kept)
    frame.sink_parquet(target)
    return int(kept.sum())


def rows_from(path: Path, cut: Cut, *, data_format: str | None = None) -> NDArray[np.bool_]:
    """Return for each row of a file whether it is within the cut.

    Raises:
        DataError: as for ``cut_files``.
    """
    source = open_source(path, data_format, DataLimits.from_environment())
    within: NDArray[np.bool_] = _within(_times(_column(source, cut), cut, source), cut).to_numpy()
    return within


def _column(source: Source, cut: Cut) -> pl.Series:
    """Return the column that tells the time, as the file has it."""
    if isinstance(source, CsvSource):
        # Reading the column checks the records as well: what is copied is in order.
        return source.read({cut.column: pl.Categorical()}).to_series().cast(pl.String)
    return pl.scan_parquet(source.path, glob=False).select(cut.column).collect().to_series()


def _times(column: pl.Series, cut: Cut, source: Source) -> pl.Series:
    """Return a column's moments in UTC.

    Raises:
        DataError: a value is no time.
    """
    dtype = column.dtype
    if dtype == pl.Date:
        column = column.cast(pl.Datetime("us"))
    elif dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if isinstance(column.dtype, pl.Datetime):
        zoned = column.dtype.time_zone is not None
        column = column.cast(pl.Datetime("us", column.dtype.time_zone))
        return column.dt.convert_time_zone("UTC") if zoned else _local(column, cut.timezone)
    if column.dtype != pl.String:
        raise _no_time(source, cut, None, str(column.dtype))
    text = column.str.strip_chars().str.replace(r"^(\S{10})[Tt]", "${1} ").str.replace(r"[zZ]$", "+00:00")
    text = text.set(text == "", None)
    local = pl.Series([None] * len(text), dtype=pl.Datetime("us"))
    for form in _FORMATS:
        local = local.fill_null(text.str.to_datetime(form, time_unit="us", strict=False))
    moments = _local(local, cut.timezone)
    for form in _ZONED:
        moments = moments.fill_null(text.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False))
    wrong = (moments.is_null() & text.is_not_null()).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise _no_time(source, cut, row, str(column[row]))
    return moments


def _local(column: pl.Series, timezone: str) -> pl.Series:
    # Of an hour that comes twice the first is taken; one that a clock skipped is no time.
    zoned = column.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone("UTC")


def _within(moments: pl.Series, cut: Cut) -> pl.Series:
    kept = moments < cut.until.astimezone(UTC)
    if cut.since is not None:
        kept &= moments >= cut.since.astimezone(UTC)
    return kept.fill_null(value=False)


def _no_time(source: Source, cut: Cut, row: int | None, found: str) -> DataError:
    line = source.locate({(row, cut.column)})[row, cut.column].line if row is not None else None
    return DataError(
        ValidationIssue(
            "is not a time",
            file=source.path.name,
            line=line,
            key=cut.column,
            found=found[:80],
            expected="such as 2026-01-31, 2026-01-31 14:05:00 or 2026-01-31T14:05:00+01:00",
        )
    )


def _words(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
