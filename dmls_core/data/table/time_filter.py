"""Keep the rows of an interval, by the column that contains the time of each row.

The selected rows are written to new files first, so neither validation nor training reads any other row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.encoder import DateFeature
from dmls_core.data.formats.csv_source import CsvSource
from dmls_core.data.formats.data_files import open_source
from dmls_core.data.formats.parquet_source import reading
from dmls_core.data.formats.source import FileSource
from dmls_core.data.moments import DateOrder, moment
from dmls_core.data.table.dates import ORDERS, is_date
from dmls_core.data.table.reader import missing_column
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

_FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d %H:%M:%S%.f",
)
_ZONE = r"(?i):\d{2}.*(?:Z|UTC|[+-]\d{2}:?\d{2})$"
_ZONED = ("%Y-%m-%d %H:%M%#z", "%Y-%m-%d %H:%M:%S%.f%#z")


@dataclass(frozen=True, slots=True)
class TimeFilter:
    """The interval of the rows to keep; None means no limit.

    Attributes:
        column: the column with the time of a row: text such as ``[columns] dates`` has, or a date or time of
            Parquet.
        until: end of the interval, excluded.
        timezone: time zone of times without one.
        order: of dates that do not begin with the year; see ``moments``.
    """

    column: str
    since: datetime | None
    until: datetime
    timezone: str = "UTC"
    order: DateOrder = "year-first"


def filter_files(
    paths: Sequence[Path], rows: TimeFilter, folder: Path, *, data_format: str | None = None
) -> list[Path | None]:
    """Write the rows of each file that are in the interval to a new file; rows without a time are left out.

    Each new file has its own subfolder of ``folder`` and keeps its name. The result has None for a file
    without rows in the interval.

    Raises:
        DataError: a file cannot be read, the column is missing or has a value that is not a time, or no row
            of any file is in the interval.
    """
    limits = DataLimits.from_environment()
    written: list[Path | None] = []
    for number, path in enumerate(paths):
        source = open_source(path, data_format, limits)
        target = folder / str(number) / path.name
        target.parent.mkdir(parents=True)
        written.append(target if _filter(source, rows, target) else None)
    if not any(written):
        since = f"from {_format(rows.since)} " if rows.since else ""
        raise DataError(
            ValidationIssue(
                f"no row has a time {since}to {_format(rows.until)}",
                key="columns.time",
                file=", ".join(path.name for path in paths[:5]),
                hint="run it for another interval, or widen [data] window",
            )
        )
    return written


def _filter(source: FileSource, rows: TimeFilter, target: Path) -> int:
    """Write the rows of one file and return their number."""
    if rows.column not in source.names:
        raise DataError(
            missing_column(rows.column, source.names, source.path.name, "columns.time", source.header_line)
        )
    row_mask = _within(_times(_column(source, rows), rows, source), rows)
    if isinstance(source, CsvSource):
        return source.copy_rows(row_mask, target)
    with reading(source.path):
        pl.scan_parquet(source.path, glob=False).filter(row_mask).sink_parquet(target)
    return int(row_mask.sum())


def read_times(source: FileSource, column: str, timezone: str, order: DateOrder = "year-first") -> pl.Series:
    """Return the time of each row of a file in UTC, null if missing; raises as ``filter_files`` does."""
    rows = TimeFilter(column, None, datetime.max.replace(tzinfo=UTC), timezone, order)
    return _times(_column(source, rows), rows, source)


def rows_within(path: Path, rows: TimeFilter, *, data_format: str | None = None) -> NDArray[np.bool_]:
    """Return a mask of the file's rows in the interval; raises as ``filter_files`` does."""
    source = open_source(path, data_format, DataLimits.from_environment())
    within: NDArray[np.bool_] = _within(_times(_column(source, rows), rows, source), rows).to_numpy()
    return within


def _column(source: FileSource, rows: TimeFilter) -> pl.Series:
    """Return the time column as it is in the file."""
    if isinstance(source, CsvSource):
        # Reading the column also checks the records.
        return source.read({rows.column: pl.Categorical()}).to_series().cast(pl.String)
    with reading(source.path):
        return pl.scan_parquet(source.path, glob=False).select(rows.column).collect().to_series()


def _times(column: pl.Series, rows: TimeFilter, source: FileSource) -> pl.Series:
    """Return the times of a column in UTC; raise ``DataError`` if a value is not a time."""
    dtype = column.dtype
    if dtype == pl.Date:
        column = column.cast(pl.Datetime("us"))
    elif dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if isinstance(column.dtype, pl.Datetime):
        zoned = column.dtype.time_zone is not None
        column = column.cast(pl.Datetime("us", column.dtype.time_zone))
        return column.dt.convert_time_zone("UTC") if zoned else _local(column, rows.timezone)
    if column.dtype != pl.String:
        raise _not_a_time(source, rows, None, str(column.dtype))
    text = column.str.strip_chars().str.replace(r"^(\S{10})[Tt]", "${1} ").str.replace(r"[zZ]$", "+00:00")
    text = text.set(text == "", None)
    local = pl.Series([None] * len(text), dtype=pl.Datetime("us"))
    for form in _FORMATS:
        local = local.fill_null(text.str.to_datetime(form, time_unit="us", strict=False))
    moments = _local(local, rows.timezone)
    for form in _ZONED:
        moments = moments.fill_null(text.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False))
    unread = text.filter(moments.is_null())
    if unread.count():
        moments = moments.fill_null(_other_times(text, unread.drop_nulls().unique(), rows))
    wrong = (moments.is_null() & text.is_not_null()).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise _not_a_time(source, rows, row, str(column[row]))
    return moments


def _other_times(text: pl.Series, unread: pl.Series, rows: TimeFilter) -> pl.Series:
    """Return the times of texts that are dates for ``[columns] dates``, such as 31.1.2026."""
    seconds: dict[str, int] = {}
    for value in unread.to_list():
        with suppress(ValueError):
            seconds[value] = moment(value, rows.order)
    stamps = text.replace_strict(list(seconds), list(seconds.values()), default=None, return_dtype=pl.Int64)
    moments = (stamps * 1_000_000).cast(pl.Datetime("us"))
    with_zone = text.str.contains(_ZONE).fill_null(value=False)
    return moments.dt.replace_time_zone("UTC").zip_with(with_zone, _local(moments, rows.timezone))


def _local(column: pl.Series, timezone: str) -> pl.Series:
    # An hour that occurs twice is the first one; an hour that the clock skips is not a time.
    zoned = column.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone("UTC")


def _within(moments: pl.Series, rows: TimeFilter) -> pl.Series:
    row_mask = moments < rows.until.astimezone(UTC)
    if rows.since is not None:
        row_mask &= moments >= rows.since.astimezone(UTC)
    return row_mask.fill_null(value=False)


def _not_a_time(source: FileSource, rows: TimeFilter, row: int | None, value: str) -> DataError:
    line = source.locate({(row, rows.column)})[row, rows.column].line if row is not None else None
    return DataError(
        ValidationIssue(
            "is not a time",
            file=source.path.name,
            line=line,
            key=rows.column,
            found=value[:80],
            expected="such as 2026-01-31, 2026-01-31 14:05:00 or 2026-01-31T14:05:00+01:00",
            hint=_hint(value, rows),
        )
    )


def _hint(value: str, rows: TimeFilter) -> str:
    if orders := [
        order for order in ORDERS if order != rows.order and is_date(value, DateFeature("", order))
    ]:
        return f'if it is a date, set [columns] date_order = "{orders[0]}"'
    if is_date(value, DateFeature("", days=False, times=True)):
        return "a time of the day does not order rows of several days: name a column with the date"
    return ""


def _format(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
