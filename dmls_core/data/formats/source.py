"""One data file that DMLS reads as it is: its columns, their rough types, and the positions of values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import polars as pl

ColumnType = Literal["truth", "integer", "number", "time", "category", "text", "unusable"]
"""The rough type of a column; for CSV, inferred from the first rows."""


@dataclass(frozen=True, slots=True)
class LocatedCell:
    """A value as written in the file, and the line of its record (None if the format has no lines)."""

    line: int | None
    text: str


class FileSource(ABC):
    """One data file."""

    header_line: int | None = None
    """Line of the header; None if the format has no lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def declared(self) -> Mapping[str, pl.DataType]:
        """Return the types that the file itself states; none if its format has no types."""
        return {}

    @property
    @abstractmethod
    def column_types(self) -> tuple[tuple[str, ColumnType], ...]:
        """Return the columns and their types, in the order of the file."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the column names; one may occur twice."""
        return tuple(name for name, _ in self.column_types)

    @abstractmethod
    def read(self, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns in the order of ``types``: ``Float32`` or ``Float64``, or ``Categorical`` for text.

        A column of numbers is returned as ``String`` if some values are not numbers.

        Raises:
            DataError: the file is broken; each issue has its line.
        """

    @abstractmethod
    def aggregate(self, types: Mapping[str, pl.DataType], aggregates: Aggregates) -> pl.DataFrame:
        """Compute aggregates of columns in one pass, a part of the file in memory at a time.

        ``types`` are ``Float32`` or ``Float64``, or ``String`` for text. Return one row with the columns of
        ``aggregates``, ``rows``, and ``empty``: the rows in which all ``types`` are null.

        Raises:
            DataError: as for ``read``.
        """

    @abstractmethod
    def count_rows(self) -> int:
        """Return the number of rows without parsing them; line breaks within cells count as rows."""

    @abstractmethod
    def store(self, types: Mapping[str, pl.DataType], path: Path) -> tuple[pl.LazyFrame, int]:
        """Return columns to read as often as needed, and the number of rows.

        Text of a CSV file is ``String``. If reading it takes long, as for CSV, it is copied as Parquet to a
        file whose name begins with ``path``, a part of it in memory at a time.

        Raises:
            DataError: as for ``read``.
        """

    def read_with(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns as ``read`` does, those that are clean with ``reader``."""
        frame = self._on_device(reader, types)
        if frame is None:
            return self.read(types)
        if left := {name: dtype for name, dtype in types.items() if name not in frame.columns}:
            rest = self.read(left)
            if rest.height != frame.height:
                return self.read(types)
            frame = frame.hstack(rest)
        return frame.select(list(types))

    @abstractmethod
    def _on_device(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
        """Return the columns that the reader could read; None if there are none."""

    @abstractmethod
    def integers(self, name: str) -> pl.Series | None:
        """Read a column as 64-bit integers; None if it contains anything else."""

    @abstractmethod
    def locate(self, cells: Collection[tuple[int, str]]) -> dict[tuple[int, str], LocatedCell]:
        """Return the positions of values, given by row (from 0, as ``read`` counts) and column."""


class Aggregates(Protocol):
    """Makes the aggregates of the column at ``position`` of the types, and gives each a name of its own.

    ``dtype`` is the column's, or ``String`` if some values of a column of numbers are not numbers.
    """

    def __call__(self, position: int, column: pl.Expr, dtype: pl.DataType) -> Sequence[pl.Expr]:
        """Return the aggregates of one column."""
        ...


_T = TypeVar("_T")

_SOME = 16
"""Columns by which rows without a value are looked for first."""


def some_of(columns: Sequence[_T]) -> Sequence[_T]:
    """Return some columns, spread over all: a row without a value has none there.

    To look at all columns of each row of a wide table takes longer than the aggregates.
    """
    return columns[:: max(1, len(columns) // _SOME)]


ValueType = Literal["float32", "float64", "str"]
"""The type as which a device reader reads a column."""


class DeviceReader(Protocol):
    """Reads columns on a device, for example a GPU. It may leave out columns, or return None."""

    def csv(self, path: Path, kinds: Mapping[int, ValueType], *, header_lines: int, columns: int) -> Any:  # noqa: ANN401 - a pyarrow.Table
        """Read columns, given by position, as a ``pyarrow.Table`` with the positions as names, or None."""
        ...

    def parquet(self, path: Path, kinds: Mapping[str, ValueType]) -> Any:  # noqa: ANN401 - a pyarrow.Table
        """Read columns as a ``pyarrow.Table``, or return None."""
        ...


def value_type(dtype: pl.DataType) -> ValueType:
    """Return the type as which a device reader reads a column of type ``dtype``."""
    if dtype == pl.Float32:
        return "float32"
    return "float64" if dtype == pl.Float64 else "str"


def as_frame(table: Any, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:  # noqa: ANN401 - as above
    """Convert a reader's table to a frame of the given types; None if it is empty."""
    if table is None or not table.num_columns or not table.num_rows:
        return None
    frame = pl.DataFrame(pl.from_arrow(table))
    return frame.cast({name: dtype for name, dtype in types.items() if name in frame.columns})
