"""Read Parquet files, which state the types of their columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

import polars as pl

from dmls_core.data.formats.damage import readable
from dmls_core.data.formats.source import (
    Aggregates,
    ColumnType,
    DeviceReader,
    FileSource,
    LocatedCell,
    as_frame,
    some_of,
    value_type,
)
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits


def reading(path: Path) -> AbstractContextManager[None]:
    """Raise ``DataError`` that names a Parquet file for what polars raises; see ``readable``."""
    return readable(path, "the file cannot be read as Parquet", "it is damaged: write and upload it again")


class ParquetSource(FileSource):
    """One Parquet file."""

    def __init__(self, path: Path, limits: DataLimits) -> None:
        """Read the schema; raise ``DataError`` if this is not a Parquet file or has too many columns."""
        super().__init__(path)
        with reading(path):
            self._schema = pl.read_parquet_schema(path)
        if len(self._schema) > limits.columns:
            raise DataError(
                ValidationIssue(
                    "the file has too many columns",
                    hint="remove those that the spec does not use",
                    file=path.name,
                    found=str(len(self._schema)),
                    expected=f"at most {limits.columns}",
                )
            )

    @property
    def declared(self) -> Mapping[str, pl.DataType]:
        """Return the types of the schema."""
        return self._schema

    @cached_property
    def column_types(self) -> tuple[tuple[str, ColumnType], ...]:
        """Return the columns and their types."""
        return tuple((name, _column_type(dtype)) for name, dtype in self._schema.items())

    def count_rows(self) -> int:
        """Return the number of rows in the footer."""
        with reading(self.path):
            return int(pl.scan_parquet(self.path, glob=False).select(pl.len()).collect().item())

    def read(self, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns; see ``FileSource.read``."""
        frame = self._collect([self._column(name, dtype) for name, dtype in types.items()])
        if frame.is_empty():
            raise DataError(self._no_rows())
        return frame

    def aggregate(self, types: Mapping[str, pl.DataType], aggregates: Aggregates) -> pl.DataFrame:
        """Compute aggregates of columns; see ``FileSource.aggregate``."""
        columns = [self._column(name, dtype) for name, dtype in types.items()]
        dtypes = types.values()
        selected = [
            aggregate
            for position, (column, dtype) in enumerate(zip(columns, dtypes, strict=True))
            for aggregate in aggregates(position, column, dtype)
        ]

        def empty(columns: Sequence[pl.Expr]) -> pl.Expr:
            return pl.all_horizontal(column.is_null() for column in columns).sum().alias("empty")

        some = some_of(columns)
        frame = self._collect([*selected, pl.len().alias("rows"), empty(some)])
        if not frame["rows"].item():
            raise DataError(self._no_rows())
        if len(columns) > len(some) and frame["empty"].item():
            frame = frame.with_columns(self._collect([empty(columns)]))
        return frame

    def store(self, types: Mapping[str, pl.DataType], _path: Path) -> tuple[pl.LazyFrame, int]:
        """Return columns to read from the file itself; see ``FileSource.store``."""
        if not (rows := self.count_rows()):
            raise DataError(self._no_rows())
        columns = [self._column(name, dtype).alias(name) for name, dtype in types.items()]
        return pl.scan_parquet(self.path, glob=False).select(columns), rows

    def _collect(self, columns: Sequence[pl.Expr]) -> pl.DataFrame:
        with reading(self.path):
            return pl.scan_parquet(self.path, glob=False).select(columns).collect(engine="streaming")

    def _no_rows(self) -> ValidationIssue:
        return ValidationIssue("the file has no rows", "upload it again with its rows", file=self.path.name)

    def _on_device(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
        # Only polars converts other types to text or numbers.
        value_types = {
            name: value_type(dtype) for name, dtype in types.items() if self._is_native(name, dtype)
        }
        return as_frame(reader.parquet(self.path, value_types), types) if value_types else None

    def _is_native(self, name: str, dtype: pl.DataType) -> bool:
        stored = self._schema[name]
        return (stored.is_integer() or stored.is_float()) if dtype.is_numeric() else stored == pl.String

    def integers(self, name: str) -> pl.Series | None:
        """Read a column as integers; see ``FileSource.integers``."""
        return self._collect([pl.col(name)]).to_series()

    def locate(self, cells: Collection[tuple[int, str]]) -> dict[tuple[int, str], LocatedCell]:
        """Return the values; see ``FileSource.locate``."""
        with reading(self.path):
            scan = pl.scan_parquet(self.path, glob=False)
            return {
                (row, name): LocatedCell(None, str(scan.select(name).slice(row, 1).collect().item()))
                for row, name in cells
            }

    def _column(self, name: str, dtype: pl.DataType) -> pl.Expr:
        column, stored = pl.col(name), self._schema[name]
        if stored == pl.Boolean and not dtype.is_numeric():
            # The spelling of pandas and Python.
            column = pl.when(column).then(pl.lit("True")).when(~column).then(pl.lit("False"))
        if dtype == pl.Categorical:
            return column.cast(pl.String).cast(dtype).alias(name)
        return column.cast(dtype).alias(name)


def _column_type(dtype: pl.DataType) -> ColumnType:
    if dtype.is_integer():
        return "integer"
    if dtype.is_numeric():
        return "number"
    if dtype == pl.Boolean:
        return "truth"
    if dtype.is_temporal() and dtype != pl.Duration:  # polars cannot convert durations to text
        return "time"
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return "category"
    if isinstance(dtype, pl.String | pl.Null):
        return "text"
    return "unusable"
