"""Read the data files of a submission as one table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl

from dmls_core.data.csv_source import CsvSource
from dmls_core.data.parquet_source import ParquetSource
from dmls_core.data.sources import Cell, ColumnType, DeviceReader, Source
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

_FORMATS = {".csv": "csv", ".parquet": "parquet"}
_GENERALITY: list[ColumnType] = ["truth", "integer", "number", "time", "category", "text", "unusable"]
"""If files disagree about a column's type, the rightmost of their types wins."""


class DataFiles:
    """One or more data files with the same columns."""

    def __init__(self, paths: Sequence[Path], data_format: str | None, limits: DataLimits) -> None:
        """Open the files; without ``data_format``, a file's name gives its format.

        Raises:
            DataError: there is no file, or one does not exist or has another format.
        """
        self.sources = tuple(open_source(path, data_format, limits) for path in paths)
        if not self.sources:
            raise DataError("there is no data file")
        self.heights: tuple[int, ...] = ()
        """Rows of each file, set by ``read``."""
        self._limits = limits

    def column_types(self, names: Collection[str]) -> dict[str, ColumnType]:
        """Return the types of columns that all files have."""
        column_types: dict[str, ColumnType] = {}
        for source in self.sources:
            for name, column_type in source.column_types:
                if name in names:
                    column_types[name] = max(
                        column_type, column_types.get(name, column_type), key=_GENERALITY.index
                    )
        return column_types

    def read(self, types: Mapping[str, pl.DataType], reader: DeviceReader | None = None) -> pl.DataFrame:
        """Read columns that all files have, where possible with ``reader``; see ``Source.read``.

        Raises:
            DataError: a file is broken, or there are too many rows.
        """
        frames = [
            source.read_with(reader, types) if reader else source.read(types) for source in self.sources
        ]
        self.heights = tuple(frame.height for frame in frames)
        rows, most = sum(self.heights), self._limits.rows
        if rows > most:
            issue = ValidationIssue(
                "the data has too many rows", found=f"{rows:,}", expected=f"at most {most:,}"
            )
            raise DataError(issue)
        # If one file has text in place of numbers, the column is text.
        mixed = [name for name in types if len({frame[name].dtype for frame in frames}) > 1]
        return pl.concat([frame.cast(dict.fromkeys(mixed, pl.String)) for frame in frames])

    def integers(self, name: str) -> pl.Series | None:
        """Read a column as 64-bit integers; None if it holds anything else."""
        parts = [source.integers(name) for source in self.sources]
        known = [part for part in parts if part is not None]
        return pl.concat(known).alias(name) if len(known) == len(parts) else None

    def locate(self, cells: Collection[tuple[int, str]]) -> dict[tuple[int, str], tuple[Source, Cell]]:
        """Return the positions of values, given by row (from 0, as ``read`` counts) and column."""
        located: dict[tuple[int, str], tuple[Source, Cell]] = {}
        if not cells:
            return located
        first = 0
        for source, height in zip(self.sources, self.heights, strict=True):
            own = {(row - first, name) for row, name in cells if first <= row < first + height}
            if own:
                found = source.locate(own)
                located.update({(row + first, name): (source, cell) for (row, name), cell in found.items()})
            first += height
        return located


def open_source(path: Path, data_format: str | None, limits: DataLimits) -> Source:
    """Open one file; raise ``DataError`` if it does not exist or has another format."""
    if not path.is_file():
        raise DataError(ValidationIssue("the file does not exist", file=str(path)))
    match data_format or _FORMATS.get(path.suffix.lower()):
        case "csv":
            return CsvSource(path, limits)
        case "parquet":
            return ParquetSource(path, limits)
    raise DataError(
        ValidationIssue(
            "the name of the file does not show its format",
            file=path.name,
            expected=".csv or .parquet",
            hint="rename it, or set [data] format",
        )
    )
