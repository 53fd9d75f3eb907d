"""Data files, whatever their format: columns, rough types, the positions of values, and issues with them."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dmls_core.errors import ValidationIssue

if TYPE_CHECKING:
    import polars as pl

    from dmls_core.data.files import DataFiles

ColumnType = Literal["truth", "integer", "number", "time", "category", "text", "unusable"]
"""The rough type of a column; that of a CSV column is inferred from its first rows."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The position of a value.

    Attributes:
        line: the line of its record; None if the format has no lines.
        text: the value as written in the file.
    """

    line: int | None
    text: str


class Source(ABC):
    """One data file."""

    header_line: int | None = None
    """Line of the header; None if the format has no lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    @abstractmethod
    def column_types(self) -> tuple[tuple[str, ColumnType], ...]:
        """Return the columns in the order of the file, and their types."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the column names; one may occur twice."""
        return tuple(name for name, _ in self.column_types)

    @abstractmethod
    def read(self, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns, in the order of ``types``.

        Args:
            types: the type to read each column as: ``Float32`` or ``Float64`` for numbers, ``Categorical``
                for text. A column of numbers is returned as ``String`` if some values are not numbers.

        Raises:
            DataError: the file is broken; each issue has its line.
        """

    def read_with(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns as ``read`` does, on a device those that are clean there."""
        found = self._on_device(reader, types)
        if found is None:
            return self.read(types)
        if left := {name: dtype for name, dtype in types.items() if name not in found.columns}:
            rest = self.read(left)
            if rest.height != found.height:
                return self.read(types)
            found = found.hstack(rest)
        return found.select(list(types))

    @abstractmethod
    def _on_device(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
        """Return the columns that the reader could read; None if there are none."""

    @abstractmethod
    def integers(self, name: str) -> pl.Series | None:
        """Read a column as 64-bit integers; None if it contains anything else."""

    @abstractmethod
    def locate(self, cells: Collection[tuple[int, str]]) -> dict[tuple[int, str], Cell]:
        """Return the positions of values, given by row (from 0, as ``read`` counts) and column."""


Kind = Literal["float32", "float64", "str"]
"""The type that a device reader reads a column as."""


class DeviceReader(Protocol):
    """Reads columns on a device, such as a GPU. It may leave out any of them, and return None."""

    def csv(self, path: Path, kinds: Mapping[int, Kind], *, header_lines: int, columns: int) -> Any:  # noqa: ANN401 - a pyarrow.Table
        """Read columns, given by their positions, from a CSV file of ``columns`` columns.

        Returns:
            A ``pyarrow.Table`` whose columns are named by their positions, or None.
        """
        ...

    def parquet(self, path: Path, kinds: Mapping[str, Kind]) -> Any:  # noqa: ANN401 - a pyarrow.Table
        """Read columns of a Parquet file.

        Returns:
            A ``pyarrow.Table``, or None.
        """
        ...


def kind_of(dtype: pl.DataType) -> Kind:
    """Return the type that a reader reads for a column of type ``dtype``."""
    import polars as pl

    if dtype == pl.Float32:
        return "float32"
    return "float64" if dtype == pl.Float64 else "str"


def as_frame(table: Any, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:  # noqa: ANN401 - as above
    """Convert the table of a reader to a frame of the given types; None if it is empty."""
    import polars as pl

    if table is None or not table.num_columns or not table.num_rows:
        return None
    frame = pl.DataFrame(pl.from_arrow(table))
    return frame.cast({name: dtype for name, dtype in types.items() if name in frame.columns})


@dataclass(frozen=True, slots=True)
class ColumnIssue:
    """An issue with a column's values, before its file and line are known.

    Attributes:
        column: the name of the column.
        message: what is wrong; it follows the column's name.
        row: the first row with the issue, from 0 over all files; None if it concerns no single row.
        found: what was found, if not the value of that row.
        expected: what is expected.
        hint: how to fix it.
    """

    column: str
    message: str
    row: int | None = None
    found: str = ""
    expected: str = ""
    hint: str = ""


def locate_issues(found: Sequence[ColumnIssue], files: DataFiles, most: int) -> list[ValidationIssue]:
    """Return issues of columns with their file and line.

    Args:
        found: the issues of columns that were read from ``files``.
        files: the files, already read.
        most: largest number of issues; the others are only counted.
    """
    shown = found[:most]
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
                hint=issue.hint,
                file=file,
                line=line,
                key=issue.column,
                found=value,
                expected=issue.expected,
            )
        )
    if len(found) > most:
        issues.append(ValidationIssue(f"{len(found) - most} more columns have issues"))
    return issues


def content_hash(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of a file; of several files, the SHA-256 of their hashes in order, one per line."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()
