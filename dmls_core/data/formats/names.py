"""Formats of data files, by their names and ``[data]``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.spec.data_table import Data

_TEXT = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}

_FORMATS = {
    **_TEXT,
    ".parquet": "parquet",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xlsb": "excel",
    ".xls": "excel",
}
"""Ending of a file's name -> its format."""

ENDINGS = {kind: ending for ending, kind in reversed(_FORMATS.items())}
"""Format -> the first ending of names that shows it."""

COMPRESSED = (".gz", ".zst", ".zip")

PLAIN_ENDINGS = (".csv", ".parquet")
"""Endings of files that are read as they are."""

_PACKED = (".gz", ".zst")

PROSE_ENDINGS = (".txt", *(f".txt{packed}" for packed in _PACKED))
"""Endings of tables and of notes: they show a table only if a folder has no other."""

CONVERTED_ENDINGS = (
    *(ending for ending in _FORMATS if ending not in (*PLAIN_ENDINGS, ".txt")),
    ".zip",
    *(f"{ending}{packed}" for ending in _TEXT if ending != ".txt" for packed in _PACKED),
)
"""Endings of files that are converted first."""

DATA_ENDINGS = (*PLAIN_ENDINGS, *CONVERTED_ENDINGS, *PROSE_ENDINGS)


def naming_hint(name: str) -> str:
    """Return the remedy for a file whose name is not that of a data file."""
    if name.lower().endswith((".ods", ".fods", ".numbers")):
        return "save the spreadsheet as .xlsx or CSV"
    if name.lower().endswith(".json"):
        return "write each row as an object in a line of its own, and name the file .jsonl"
    return f"its name must end in one of {', '.join(DATA_ENDINGS)}"


def format_of(name: str) -> str | None:
    """Return the format of a file by its name; None if the name does not show it."""
    path = Path(name.lower())
    if path.suffix in COMPRESSED:
        known = _TEXT.get(path.with_suffix("").suffix)
        return known or ("csv" if path.suffix == ".zip" else None)
    return _FORMATS.get(path.suffix)


def text_name(file: str) -> str:
    """Return the name of the text of a compressed file; without an extension, it is CSV."""
    name = file.rpartition(".")[0]
    return name if format_of(name) else f"{name}.csv"


def needs_whole(name: str) -> bool:
    """Return whether the rows of a file cannot be read from its beginning alone."""
    return format_of(name) in ("parquet", "excel")


def needs_conversion(name: str, data: Data) -> bool:
    """Return whether a file is something else than DMLS's CSV or Parquet, by its name and ``[data]``.

    So is one with marks of missing values that are not always read as such.
    """
    kind = data.format or format_of(name)
    written = kind in ("jsonl", "excel") or name.lower().endswith(COMPRESSED) or not data.is_plain
    return bool(data.missing) or (kind != "parquet" and written)
