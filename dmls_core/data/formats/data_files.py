"""Data files of any format, read as one table: columns, rough types, positions of values, and issues."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dmls_core.data.declared_types import check_types, distinct_names
from dmls_core.data.formats.names import format_of, load_format, usual_endings
from dmls_core.data.formats.source import Aggregates, ColumnType, DeviceReader, FileSource, LocatedCell
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

EXCLUDE = "exclude the column with [columns] drop"
"""In the hint of a ``ColumnIssue``: how a column is left out, unless the spec lists the features."""


@dataclass(frozen=True, slots=True)
class ColumnIssue:
    """An issue with a column's values, without its file and line.

    Attributes:
        message: follows the column's name.
        row: the first row with the issue, from 0 over all files; None if it concerns no single row.
        found: by default the value of that row.
        refutable: whether further rows could show that there is no issue.
    """

    column: str
    message: str
    row: int | None = None
    found: str = ""
    expected: str = ""
    hint: str = ""
    refutable: bool = False


def locate_issues(
    column_issues: Sequence[ColumnIssue], files: DataFiles, most: int, *, listed: bool = False
) -> list[ValidationIssue]:
    """Return issues with file and line; beyond ``most``, they are only counted. The files have been read.

    ``listed`` says that the spec lists the features, so that none of them can be dropped.
    """
    shown = column_issues[:most]
    located = files.locate({(issue.row, issue.column) for issue in shown if issue.row is not None})
    issues = []
    for issue in shown:
        message, line, value = issue.message, None, issue.found
        file = files.sources[0].path.name if len(files.sources) == 1 else ""
        if issue.row is not None:
            source, cell = located[issue.row, issue.column]
            file, line, value = source.path.name, cell.line, value or cell.text[:80]
            if line is None:  # this format has no lines
                message += f" (row {issue.row + 1})"
        issues.append(
            ValidationIssue(
                message,
                hint=issue.hint.replace(EXCLUDE, "remove the column from [columns] features")
                if listed
                else issue.hint,
                file=file,
                line=line,
                key=issue.column,
                found=value,
                expected=issue.expected,
            )
        )
    if len(column_issues) > most:
        issues.append(ValidationIssue(f"{len(column_issues) - most} more columns have issues"))
    return issues


def content_hash(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of a file; for several files, of their hashes in order, one per line."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


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
        unknown: dict[str, ColumnType] = {}
        used = frozenset(names)
        for source in self.sources:
            for name, column_type in source.column_types:
                if name not in used:
                    continue
                types = unknown if source.declared.get(name) == pl.Null else column_types
                types[name] = max(column_type, types.get(name, column_type), key=_GENERALITY.index)
        return unknown | column_types  # a file without values says nothing

    def check_types(self, names: Collection[str]) -> None:
        """Raise ``DataError`` if the files declare types of a column that do not go together."""
        files = distinct_names([source.path for source in self.sources])
        check_types(
            [(file, source.declared) for file, source in zip(files, self.sources, strict=True)], names
        )

    def read(self, types: Mapping[str, pl.DataType], reader: DeviceReader | None = None) -> pl.DataFrame:
        """Read columns that all files have, where possible with ``reader``; see ``FileSource.read``.

        Raises:
            DataError: a file is broken, or there are too many rows.
        """
        frames = [
            source.read_with(reader, types) if reader else source.read(types) for source in self.sources
        ]
        self.heights = tuple(frame.height for frame in frames)
        self._check_rows(sum(self.heights))
        # If one file has text in place of numbers, the column is text.
        mixed = [name for name in types if len({frame[name].dtype for frame in frames}) > 1]
        return pl.concat([frame.cast(dict.fromkeys(mixed, pl.String)) for frame in frames])

    def aggregate(self, types: Mapping[str, pl.DataType], aggregates: Aggregates) -> pl.DataFrame:
        """Compute aggregates of columns that all files have, one row for each file; see ``FileSource``.

        Raises:
            DataError: a file is broken, or there are too many rows.
        """
        frame = pl.concat([source.aggregate(types, aggregates) for source in self.sources])
        self._check_rows(int(frame["rows"].sum()))
        return frame

    def store(self, types: Mapping[str, pl.DataType], folder: Path) -> list[pl.LazyFrame]:
        """Prepare columns that all files have to be read one by one; see ``FileSource.store``.

        Raises:
            DataError: a file is broken, or there are too many rows.
        """
        stored = [source.store(types, folder / f"{at}.parquet") for at, source in enumerate(self.sources)]
        self.heights = tuple(height for _, height in stored)
        self._check_rows(sum(self.heights))
        return [scan for scan, _ in stored]

    def _check_rows(self, rows: int) -> None:
        if rows > (most := self._limits.rows):
            raise DataError(
                ValidationIssue("the data has too many rows", found=f"{rows:,}", expected=f"at most {most:,}")
            )

    def integers(self, name: str) -> pl.Series | None:
        """Read a column as 64-bit integers; None if it holds anything else."""
        parts = [source.integers(name) for source in self.sources]
        columns = [part for part in parts if part is not None]
        if len({part.dtype for part in columns}) > 1:
            columns = [part.cast(pl.Int64, strict=False) for part in columns]
        return pl.concat(columns).alias(name) if len(columns) == len(parts) else None

    def locate(
        self, cells: Collection[tuple[int, str]]
    ) -> dict[tuple[int, str], tuple[FileSource, LocatedCell]]:
        """Return the positions of values, given by row (from 0, as ``read`` counts) and column."""
        located: dict[tuple[int, str], tuple[FileSource, LocatedCell]] = {}
        if not cells:
            return located
        first = 0
        for source, height in zip(self.sources, self.heights, strict=True):
            file_cells = {(row - first, name) for row, name in cells if first <= row < first + height}
            if file_cells:
                placed = source.locate(file_cells)
                located.update({(row + first, name): (source, cell) for (row, name), cell in placed.items()})
            first += height
        return located


def open_source(path: Path, data_format: str | None, limits: DataLimits) -> FileSource:
    """Open one file; raise ``DataError`` if it does not exist or its name does not show its format."""
    if not path.is_file():
        raise DataError(ValidationIssue("the file does not exist", file=str(path)))
    name = data_format or format_of(path.name)
    if name is None:
        raise DataError(
            ValidationIssue(
                "the name of the file does not show its format",
                file=path.name,
                expected=usual_endings(),
                hint="rename it, or set [data] format",
            )
        )
    return load_format(name).open(path, limits)
