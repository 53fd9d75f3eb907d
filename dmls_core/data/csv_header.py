"""Is this a CSV file at all, and what are its columns called?"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from dmls_core.data.csv_records import not_utf8, records
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

_HEAD = 4_096
_OTHER_FORMATS = {
    b"PK\x03\x04": ("a zip archive or an Excel file", "save it as CSV"),
    b"\xd0\xcf\x11\xe0": ("an Excel file", "save it as CSV"),
    b"\x1f\x8b": ("a gzip archive", "unpack it first"),
    b"BZh": ("a bzip2 archive", "unpack it first"),
    b"\xfd7zXZ": ("an xz archive", "unpack it first"),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "unpack it first"),
    b"PAR1": ("a Parquet file", "name it .parquet, or set [data] format"),
    codecs.BOM_UTF16_LE: ("text in UTF-16", "save it as UTF-8"),
    codecs.BOM_UTF16_BE: ("text in UTF-16", "save it as UTF-8"),
}


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a CSV file.

    Attributes:
        names: the columns' names without blanks around them.
        lines: lines that it takes, the empty ones below it included.
    """

    names: tuple[str, ...]
    lines: int


def read_header(path: Path, limits: DataLimits) -> Header:
    """Read the header.

    Raises:
        DataError: the file is empty, of another format, not comma-separated or not UTF-8, or has too many
            columns.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise DataError(ValidationIssue("the file is empty", file=path.name, expected="a header and rows"))
    for magic, (what, hint) in _OTHER_FORMATS.items():
        if head.startswith(magic):
            raise DataError(ValidationIssue(f"the file is {what}", file=path.name, expected="CSV", hint=hint))
    if b"\0" in head:
        raise DataError(
            ValidationIssue("the file is binary", file=path.name, found="NUL bytes", expected="CSV in UTF-8")
        )
    lines = records(path)
    first = next(lines)
    try:
        first.raw.decode()
    except UnicodeDecodeError:
        raise DataError(not_utf8(path, 1, first.raw)) from None
    names = tuple(name.strip() for name in first.fields())
    if issue := _odd_header(path, first.raw, names, limits):
        raise DataError(issue)
    # Polars counts the columns by the line below the header.
    empty = sum(1 for _ in takewhile(lambda record: not record.raw, lines))
    return Header(names, first.lines + empty)


def _odd_header(path: Path, raw: bytes, names: tuple[str, ...], limits: DataLimits) -> ValidationIssue | None:
    if not any(names):
        return ValidationIssue(
            "the first line is empty", file=path.name, line=1, expected="the names of the columns"
        )
    if b"\r" in raw and b'"' not in raw:
        return ValidationIssue(
            "lines end with a carriage return alone",
            file=path.name,
            line=1,
            hint="save the file with line feeds (\\n or \\r\\n)",
        )
    if len(names) > limits.columns:
        return ValidationIssue(
            "there are too many columns",
            file=path.name,
            found=str(len(names)),
            expected=f"at most {limits.columns}",
        )
    for separator, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(names) == 1 and separator in names[0]:
            return ValidationIssue(
                f"the columns seem to be separated by {word}",
                file=path.name,
                line=1,
                found=names[0][:80],
                expected="commas",
                hint="save the file comma-separated, with a point as decimal mark",
            )
    return None
