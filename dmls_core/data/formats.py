"""Formats of data files, by their names and ``[data]``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.spec.tables import Data

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""Ending of a file's name -> its format."""

COMPRESSED = (".gz", ".zip")


def format_of(name: str) -> str | None:
    """Return the format of a file by its name; None if the name does not show it."""
    path = Path(name.lower())
    if path.suffix in COMPRESSED:
        path = path.with_suffix("")
        return FORMATS.get(path.suffix, "csv" if name.lower().endswith(".zip") else None)
    return FORMATS.get(path.suffix)


def needs_conversion(name: str, data: Data) -> bool:
    """Return whether a file is something else than DMLS's CSV or Parquet, by its name and ``[data]``."""
    kind = data.format or format_of(name)
    return kind != "parquet" and (kind == "jsonl" or name.lower().endswith(COMPRESSED) or not data.is_plain)
