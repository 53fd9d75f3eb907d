"""A Delta Lake or Iceberg table at one version: its columns, its files, and the rows of a time range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 32_768
"""Rows that are read at a time."""

_BUFFER_BYTES = 1 << 20
"""Bytes that are read at a time of each column of a Parquet file."""

_CLOCK_CHANGE = timedelta(hours=2)
"""The most that a time without a zone can be off, because an hour occurs twice or never."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table: ``read`` yields its rows with the columns of the table's schema."""

    name: str
    read: Callable[[], Iterator[pa.RecordBatch]]
    exists: Callable[[], bool]
    """Whether the file can be reached; raises what the store raises."""


class LakeTable(Protocol):
    """A table at one version."""

    @property
    def version(self) -> int:
        """Return the version, or the id of the snapshot."""
        ...

    @property
    def identity(self) -> str:
        """Return what distinguishes the table from another one that had the same address before."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        ...

    def files(self, names: Sequence[str], times: TimeRange | None) -> Iterable[TableFile]:
        """Return the files that may have rows in the range, in an order that depends on the version alone."""
        ...


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The rows to read: ``start`` to ``end`` (excluded), as values of the column's type."""

    column: str
    start: datetime
    end: datetime

    @classmethod
    def of(cls, schema: pa.Schema, column: str, between: Sequence[str], timezone: str) -> TimeRange | None:
        """Return the range for a column of times or dates; None for another one, which the trainer parses.

        Times without a zone are in ``timezone``. Where clocks change, the range is up to two hours too large.
        """
        import pyarrow as pa

        if column not in schema.names:
            return None
        dtype = schema.field(column).type
        start, end = map(datetime.fromisoformat, between)
        if pa.types.is_timestamp(dtype) and dtype.tz is not None:
            return cls(column, start, end)
        if not (pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)):
            return None
        margin = timedelta() if timezone == "UTC" else _CLOCK_CHANGE
        zone = ZoneInfo(timezone)
        first, last = ((moment.astimezone(zone)).replace(tzinfo=None) for moment in (start, end))
        return cls(column, first - margin, last + margin)

    @property
    def days(self) -> tuple[date, date]:
        """Return the first and the last day."""
        return self.start.date(), (self.end - timedelta(microseconds=1)).date()

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return which rows are in the range; null where there is no time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = batch.column(self.column)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        start, end = (pa.scalar(moment, column.type) for moment in (self.start, self.end))
        return pc.and_(pc.greater_equal(column, start), pc.less(column, end))


def open_parquet(file: pa.NativeFile) -> pq.ParquetFile:
    """Return a Parquet file that is read as batches are needed; by default, pyarrow reads all of it."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES, coerce_int96_timestamp_unit="us")


def no_version(what: str, value: str, hint: str) -> DataError:
    """Return the error of a version that a table does not have; ``what`` follows "the table has"."""
    return DataError(ValidationIssue(f"the table has {what}", hint=hint, key="data.source", found=value))


def no_table(address: str) -> DataError:
    """Return the error of a table that does not exist."""
    hint = "correct its name, or upload the spec again when the table is there"
    return DataError(ValidationIssue("there is no such table", hint=hint, key="data.source", found=address))
