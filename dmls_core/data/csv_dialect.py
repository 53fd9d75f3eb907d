"""The CSV dialect of DMLS: UTF-8 with or without a byte order mark, commas, a header in the first line."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from dmls_core.data.csv_records import not_utf8, records
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

_HEAD = 4_096

_SIGNATURES = {
    b"PK\x03\x04": ("a zip archive or an Excel workbook", "save it as CSV, or unpack it"),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "save it as CSV"),
    b"\x1f\x8b": ("compressed with gzip", "unpack it"),
    b"BZh": ("compressed with bzip2", "unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "unpack it"),
    b"\xfd7zXZ": ("compressed with xz", "unpack it"),
    b"PAR1": ("Parquet", "give it a name that ends in .parquet, or set [data] format"),
    b"%PDF": ("a PDF document", "export the table as CSV"),
    b"SQLite format 3": ("an SQLite database", "export the table as CSV"),
    b"\x93NUMPY": ("a NumPy array", "save it as CSV with a header"),
    b"\x89HDF": ("an HDF5 file", "save it as CSV or Parquet"),
    codecs.BOM_UTF32_LE: ("encoded in UTF-32", "save it as UTF-8"),
    codecs.BOM_UTF32_BE: ("encoded in UTF-32", "save it as UTF-8"),
    codecs.BOM_UTF16_LE: ("encoded in UTF-16", "save it as UTF-8"),
    codecs.BOM_UTF16_BE: ("encoded in UTF-16", "save it as UTF-8"),
}
"""First bytes of a file that is not CSV -> what it is, and a hint."""

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True, slots=True)
class Header:
    """Names without surrounding blanks, and the number of lines, including empty ones below the header."""

    names: tuple[str, ...]
    lines: int


def read_header(path: Path, limits: DataLimits) -> Header:
    """Read the header; raise ``DataError`` unless the file is CSV in UTF-8 and within the limits."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    _check_signature(path.name, head)
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
        return ValidationIssue("the first line is empty", file=path.name, line=1, expected="the column names")
    if b"\r" in raw and b'"' not in raw:
        return ValidationIssue(
            "lines end with a lone carriage return",
            file=path.name,
            line=1,
            hint="save it with Unix or Windows line ends (\\n or \\r\\n)",
        )
    if len(names) > limits.columns:
        return ValidationIssue(
            "the file has too many columns",
            file=path.name,
            found=str(len(names)),
            expected=f"at most {limits.columns}",
        )
    return separator_issue(path.name, names)


def separator_issue(file: str, names: Sequence[str], line: int = 1) -> ValidationIssue | None:
    """Return the issue of a header whose columns are not separated by commas; None if they are."""
    for separator, plural in _SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            return ValidationIssue(
                f"the columns are separated by {plural}, not commas",
                hint="save it with commas between the columns and a point as decimal mark",
                file=file,
                line=line,
                found=names[0][:80],
                expected="commas",
            )
    return None


def _check_signature(file: str, head: bytes) -> None:
    """Raise ``DataError`` if a file is empty or in another format."""
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        issue = ValidationIssue(
            "the file is empty", hint="upload it again", file=file, expected="a header and rows"
        )
        raise DataError(issue)
    for signature, (what, hint) in _SIGNATURES.items():
        if head.startswith(signature):
            raise DataError(
                ValidationIssue(f"the file is {what}, not CSV", hint=hint, file=file, expected="CSV text")
            )


_CONTROL = bytes(range(9)) + bytes(range(14, 32))
_BINARY_SHARE = 0.02
"""A file with a larger share of control characters is binary."""


def decode_head(file: str, head: bytes, *, complete: bool) -> str:
    """Decode the beginning of a file, without its byte order mark.

    An incomplete character at the end is ignored unless ``complete`` (``head`` is the whole file).

    Raises:
        DataError: the file is empty, binary, not UTF-8, or its lines end with a lone carriage return.
    """
    _check_signature(file, head)
    nul = head.find(b"\0")
    control = len(head) - len(head.translate(None, _CONTROL))
    if nul >= 0 or control > _BINARY_SHARE * len(head):
        where = f" (a NUL at byte {nul})" if nul >= 0 else ""
        raise DataError(
            ValidationIssue(
                f"the file is binary, not CSV{where}", hint="export the table as CSV in UTF-8", file=file
            )
        )
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=complete)
    except UnicodeDecodeError as error:
        raise DataError(_not_utf8(file, head, error.start)) from error
    if "\r" in text and "\n" not in text:
        raise DataError(
            ValidationIssue(
                "lines end with a lone carriage return",
                hint="save it with Unix or Windows line ends (\\n or \\r\\n)",
                file=file,
            )
        )
    return text.removeprefix("\ufeff")


def _not_utf8(file: str, head: bytes, position: int) -> ValidationIssue:
    start = head.rfind(b"\n", 0, position) + 1
    shown = head[max(start, position - 20) : position + 20].split(b"\n")[0].decode("cp1252", "replace")
    return ValidationIssue(
        f"the file is not UTF-8: byte {position} is 0x{head[position]:02X}",
        hint=f"save it as UTF-8; in Windows-1252, the text there is {shown!r}",
        file=file,
        line=head.count(b"\n", 0, position) + 1,
        found=f"0x{head[position]:02X}",
        expected="UTF-8",
    )
