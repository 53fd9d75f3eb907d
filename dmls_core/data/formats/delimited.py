"""CSV and other text with a delimiter between the columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.data.formats.base import Format
from dmls_core.data.formats.names import COMPRESSED

if TYPE_CHECKING:
    from dmls_core.data.formats.source import FileSource
    from dmls_core.settings import DataLimits
    from dmls_core.spec.data_table import Data


class CsvFormat(Format):
    """Text with a delimiter; a file with commas, points and a header in UTF-8 is read as it is."""

    name, title = "csv", "CSV"
    suffixes = (".csv", ".tsv", ".txt")
    is_text = is_native = True
    keys = frozenset({"delimiter", "decimal", "thousands", "numbers", "encoding", "header", "skip_rows"})

    def detect(self, head: bytes) -> Mapping[str, Any] | None:
        """Return how a text is written; None if it is binary."""
        from dmls_core.data.formats.detection import detect_text

        return detect_text(head, blank=True)

    def needs_conversion(self, file: str, data: Data) -> bool:
        """Return whether the text is compressed, or written otherwise than DMLS's CSV."""
        return file.lower().endswith(COMPRESSED) or not data.is_plain

    def open(self, path: Path, limits: DataLimits) -> FileSource:
        """Open the text; raise ``DataError`` if it is not DMLS's CSV."""
        from dmls_core.data.formats.csv_source import CsvSource

        return CsvSource(path, limits)

    def convert(self, path: Path, data: Data, target: Path) -> None:
        """Write the text as DMLS's CSV."""
        from dmls_core.data.formats.encodings import write_utf8
        from dmls_core.data.formats.plain_csv import convert_text

        plain = target.with_name(f"{target.name}.text")
        write_utf8(path, data.encoding, plain)
        convert_text(plain, data, target)
