"""Parquet, which states the types of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.data.formats.base import FileSample, Format
from dmls_core.data.formats.parquet_footer import MARK
from dmls_core.errors import ValidationIssue

if TYPE_CHECKING:
    from dmls_core.data.formats.source import FileSource
    from dmls_core.settings import DataLimits
    from dmls_core.spec.data_table import Data

_SMALLEST = 12
"""Bytes of the smallest file."""


class ParquetFormat(Format):
    """Parquet, which is read as it is, unless its texts are numbers in another notation."""

    name, title = "parquet", "Parquet"
    suffixes = (".parquet",)
    is_native = has_footer = True

    def detect(self, head: bytes) -> Mapping[str, Any] | None:
        """Return no keys; None if the file does not begin as Parquet does."""
        return {} if len(head) >= _SMALLEST and head.startswith(MARK) else None

    def needs_conversion(self, file: str, data: Data) -> bool:
        """Return whether texts may be numbers in another notation."""
        return data.has_notation

    def convert(self, path: Path, data: Data, target: Path) -> None:
        """Write the file anew with plain numbers as texts, and without its marks of missing values."""
        from dmls_core.data.formats.parquet_source import reading
        from dmls_core.data.formats.plain_csv import rewrite_parquet

        with reading(path):
            rewrite_parquet(path, data, target)

    def open(self, path: Path, limits: DataLimits) -> FileSource:
        """Open the file; raise ``DataError`` if it is not Parquet."""
        from dmls_core.data.formats.parquet_source import ParquetSource

        return ParquetSource(path, limits)

    def sample(self, path: Path, _data: Data, target: Path, *, rows: int, seconds: float) -> FileSample:
        """Copy rows from all over the file."""
        from dmls_core.data.formats.parquet_source import reading
        from dmls_core.data.formats.thinning import thin_parquet

        with reading(path):
            total, spread = thin_parquet(path, target, rows, seconds)
        return FileSample(total, complete=total <= rows, spread=spread)

    def check(self, file: str, head: bytes) -> list[ValidationIssue]:
        """Return the issue of a file that is not Parquet, with the bytes that are expected."""
        issues = super().check(file, head)
        if not head:
            return issues
        return [
            ValidationIssue(issue.message, issue.hint, file=file, found=issue.found, expected=repr(MARK))
            for issue in issues
        ]
