"""The interface of a file format: how its files are recognized, sampled and read.

The command line and Airflow's DAG processor import the modules of all formats: import libraries in the
methods that use them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dmls_core.data.formats.parquet_footer import MARK
from dmls_core.errors import ValidationIssue

if TYPE_CHECKING:
    from dmls_core.data.formats.source import FileSource
    from dmls_core.settings import DataLimits
    from dmls_core.spec.data_table import Data

SAMPLE_BYTES = 1 << 20
"""Bytes of text at the beginning of a sample."""


@dataclass(frozen=True, slots=True)
class FileSample:
    """What ``Format.sample`` has written.

    Attributes:
        rows: rows of the file, if known.
        complete: whether the sample has all of them.
        spread: whether the sample is from all over the file.
        table: the table that was read, if a file can have several, such as the sheets of a workbook.
        tables: all tables of the file, with their rows.
    """

    rows: int | None
    complete: bool
    spread: bool = True
    table: str = ""
    tables: Mapping[str, int] = field(default_factory=dict)


class Format(ABC):
    r"""A format of data files.

    DMLS itself reads CSV with commas, in UTF-8, and Parquet. A file of another format is converted to one of
    them, in a process with limits of memory and time.

    Examples:
        >>> from dmls_core.data.formats.base import Format
        >>> class Lines(Format):
        ...     name, title, suffixes = "lines", "a list of numbers", (".lines",)
        ...     is_text = True
        ...     def detect(self, head):
        ...         return None  # only its name shows it
        ...     def convert(self, path, data, target):
        ...         target.write_text("number\n" + path.read_text())
        >>> Lines().needs_conversion("primes.lines", data=None)
        True
    """

    name: ClassVar[str]
    """Its name in ``[data] format``, as that of the entry point."""

    title: ClassVar[str]
    """Its name in messages, such as ``Parquet``; it follows "the file is not"."""

    suffixes: ClassVar[tuple[str, ...]]
    """Endings of the names of its files, in lower case; the usual one first."""

    is_text: ClassVar[bool] = False
    """Whether a file is text with a record in each line. So any lines of it can be read alone, if they follow
    its beginning, and it may be compressed."""

    is_native: ClassVar[bool] = False
    """Whether DMLS reads a file with the first of ``suffixes`` as it is."""

    has_footer: ClassVar[bool] = False
    """Whether the end of a file has its columns, and where its rows are, as that of Parquet."""

    adds_header: ClassVar[bool] = False
    """Whether ``convert`` writes a header above the first line of a text, so that lines are one more."""

    keys: ClassVar[frozenset[str]] = frozenset()
    """The keys of ``[data]`` on how a file is written that apply to this format."""

    @abstractmethod
    def detect(self, head: bytes) -> Mapping[str, Any] | None:
        """Return the keys of ``[data]`` that a file needs, by its first bytes; None for another format.

        Return an empty mapping if a file of this format needs no keys.
        """

    @abstractmethod
    def convert(self, path: Path, data: Data, target: Path) -> None:
        """Write a file as CSV, or as Parquet, to ``target``.

        A CSV has UTF-8, commas, decimal points and a header; ``adds_header`` aside, each record stays in its
        line, since messages name that of the original. Parquet keeps the types of the columns.

        Raises:
            DataError: the file is not of this format, or not as ``data`` says.
            Exception: any other says that the file is damaged; the first line of its message is shown.
        """

    def needs_conversion(self, file: str, data: Data) -> bool:
        """Return whether ``convert`` must be called for a file, by its name and ``[data]``."""
        return not self.is_native

    def open(self, path: Path, limits: DataLimits) -> FileSource:
        """Open a file that needs no conversion, or the one that ``convert`` wrote."""
        # Imported here: polars is large.
        from dmls_core.data.formats.csv_source import CsvSource
        from dmls_core.data.formats.parquet_source import ParquetSource

        return ParquetSource(path, limits) if is_parquet(path) else CsvSource(path, limits)

    def sample(self, path: Path, data: Data, target: Path, *, rows: int, seconds: float) -> FileSample:
        """Write about ``rows`` rows from all over a file to ``target``, as ``convert`` does.

        By default, the file is converted, and rows of the result are copied. Override it if a part of a file
        can be read in less time. It is not called for text, of which DMLS copies lines.

        Raises:
            DataError: as for ``convert``.
        """
        from dmls_core.data.formats.thinning import thin_parquet, thin_text

        converted = target.with_name(f"{target.name}.converted")
        self.convert(path, data, converted)
        try:
            if is_parquet(converted):
                total, spread = thin_parquet(converted, target, rows, seconds)
                return FileSample(total, complete=total <= rows, spread=spread)
            sampled = thin_text(str(converted), "utf-8", str(target), SAMPLE_BYTES, seconds, False)
            return FileSample(
                None, complete=sampled["bytes"] == target.stat().st_size, spread=bool(sampled["complete"])
            )
        finally:
            converted.unlink()

    def check(self, file: str, head: bytes) -> list[ValidationIssue]:
        """Return the issue of a file that is not text, by its first bytes; none if it is of this format."""
        if not head:
            return [ValidationIssue("the file is empty", hint="upload it again", file=file)]
        if self.detect(head) is not None:
            return []
        hint = "correct its extension, or write it again"
        return [ValidationIssue(f"the file is not {self.title}", hint, file=file, found=repr(head[:4]))]


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK
