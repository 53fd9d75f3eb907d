"""The CSV dialect of DMLS: UTF-8 with or without a byte order mark, commas, a header in the first line.

Polars reads the data itself. It is fast, but does not report the line of an error, and fills a record that is
too short with missing values. So this module reads records one by one to locate errors.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

if TYPE_CHECKING:
    from _csv import Reader

RECORD = 64 * 2**20
"""Largest size of one record in bytes."""


def csv_reader(lines: Iterable[str], delimiter: str = ",", *, strict: bool = False) -> Reader:
    """Return Python's reader of CSV, for cells of any size that a record may have."""
    # The limit is one for the whole process, and by default 131,072 characters.
    csv.field_size_limit(RECORD)
    return csv.reader(lines, delimiter=delimiter, strict=strict)


def numbered(reader: Reader) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a reader with the line where each begins; those of blank lines are empty."""
    line = reader.line_num + 1
    for record in reader:
        yield line, record
        line = reader.line_num + 1


def _split_fields(record: str, delimiter: str = ",") -> list[str]:
    """Return the fields of a record."""
    try:
        return next(csv_reader([record], delimiter), [])
    except csv.Error:  # a carriage return outside quotes
        return record.split(delimiter)


def _column_at(names: Sequence[str], record: str, delimiter: str = ",") -> str:
    """Return the column in which a part of a record ends: the last one at most; empty without names."""
    at = len(_split_fields(record, delimiter)) - 1
    return names[min(max(at, 0), len(names) - 1)] if names else ""


def ragged_column(names: Sequence[str], n_fields: int) -> str:
    """Return the first column without a field, or the last one, behind which there are others."""
    return names[min(n_fields, len(names) - 1)]


def _column_of_byte(head: bytes, position: int) -> str:
    """Return the column of a byte in a text with commas; empty in its first line, which has the names."""
    end, start = head.find(b"\n"), head.rfind(b"\n", 0, position) + 1
    if not start:
        return ""
    first = head[:end].removeprefix(codecs.BOM_UTF8).rstrip(b"\r")
    names = _split_fields(first.decode("utf-8", "backslashreplace"))
    return _column_at(names, head[start:position].decode("utf-8", "replace")).strip()


def _quoted_column(text: str, line: int) -> str:
    """Return the column of the last quotation mark in a line; empty in the header."""
    lines = text.split("\n", line)
    if line == 1 or len(lines) < line:
        return ""
    names = [name.strip() for name in _split_fields(lines[0].rstrip("\r"))]
    return _column_at(names, lines[line - 1].rpartition('"')[0])


class Record(NamedTuple):
    """One record; a tuple, because there may be millions.

    ``line`` counts from 1; ``raw`` excludes the line end; ``lines`` is above 1 with line breaks in quotes.
    """

    line: int
    raw: bytes
    lines: int = 1

    def fields(self, delimiter: str = ",") -> list[str]:
        """Return the fields; bytes that are not UTF-8 are escaped."""
        return _split_fields(self.raw.decode("utf-8", errors="backslashreplace"), delimiter)

    def n_fields(self, delimiter: str = ",") -> int:
        """Return the number of fields."""
        if b'"' in self.raw:
            return len(self.fields(delimiter))
        return self.raw.count(delimiter.encode()) + 1


def records(path: Path) -> Iterator[Record]:
    """Yield all records, also empty ones; raise ``DataError`` if one is too long or a quote stays open."""
    with path.open("rb") as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        line = 1
        while raw := file.readline(RECORD):
            parts, size, quotes = [raw], len(raw), raw.count(b'"')
            while quotes % 2 and size < RECORD:
                more = file.readline(RECORD)
                if not more:
                    raise DataError(
                        ValidationIssue(
                            "the double quote opened here is never closed",
                            file=path.name,
                            line=line,
                            found=_shown(raw.splitlines()[0]),
                            hint='write a double quote inside a quoted field as ""',
                        )
                    )
                parts.append(more)
                size, quotes = size + len(more), quotes + more.count(b'"')
            raw, lines = b"".join(parts), len(parts)
            if len(raw) >= RECORD:
                raise DataError(
                    ValidationIssue(f"the record is longer than {RECORD:,} bytes", file=path.name, line=line)
                )
            yield Record(line, raw.removesuffix(b"\n").removesuffix(b"\r"), lines)
            line += lines


def check_structure(
    path: Path, header_lines: int, names: Sequence[str], delimiter: str = ","
) -> list[ValidationIssue]:
    """Return the first record with a wrong number of fields, and the first that is not UTF-8."""
    issues: list[ValidationIssue] = []
    ragged: ValidationIssue | None = None
    others = 0
    undecodable = False
    n_columns = len(names)
    try:
        for record in records(path):
            if record.line <= header_lines or not record.raw:
                continue
            if not undecodable and not record.raw.isascii() and not _is_utf8(record.raw):
                undecodable = True
                issues.append(not_utf8(path, record.line, record.raw, names, delimiter))
            if (n_fields := record.n_fields(delimiter)) != n_columns:
                others += ragged is not None
                ragged = ragged or ValidationIssue(
                    f"the record has {n_fields} field{'s' * (n_fields != 1)}, the header {n_columns}",
                    file=path.name,
                    line=record.line,
                    key=ragged_column(names, n_fields),
                    found=_shown(record.raw),
                    expected=f"{n_columns} fields",
                    hint="a comma or double quote inside a value needs double quotes around the value"
                    if n_fields > n_columns
                    else "leave a missing value empty but keep its comma",
                )
    except DataError as error:
        # A quote that is not closed: of its record, only the line where it is opened is shown.
        issues.extend(
            replace(issue, key=_column_at(names, issue.found[: issue.found.rfind('"')], delimiter))
            if '"' in issue.found
            else issue
            for issue in error.issues
        )
    if ragged:
        issues.append(ragged)
        if others:
            issues.append(
                ValidationIssue(f"{others} more records have too many or too few fields", file=path.name)
            )
    return issues


def find_records(path: Path, header_lines: int, rows: Collection[int]) -> dict[int, Record]:
    """Return the records of rows, counted from 0 below the header; an empty record counts."""
    below = (record for record in records(path) if record.line > header_lines)
    chosen = set(rows)
    return {row: record for row, record in zip(range(max(chosen) + 1), below, strict=False) if row in chosen}


def not_utf8(
    path: Path, line: int, raw: bytes, names: Sequence[str] = (), delimiter: str = ","
) -> ValidationIssue:
    """Return the issue of a record that is not UTF-8."""
    valid = raw.decode("utf-8", "surrogateescape")
    wrong = next(at for at, character in enumerate(valid) if "\udc80" <= character <= "\udcff")
    return ValidationIssue(
        "the text is not UTF-8",
        file=path.name,
        line=line,
        key=_column_at(names, valid[:wrong], delimiter) if names else "",
        found=_shown(raw),
        expected="UTF-8",
        hint="save the file as UTF-8 (in Excel: 'CSV UTF-8')",
    )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(raw: bytes, most: int = 80) -> str:
    text = raw[:most].decode("utf-8", errors="backslashreplace")
    return text + ("…" if len(raw) > most else "")


@dataclass(frozen=True, slots=True)
class CsvRow:
    """A row and the line where it begins, from 1."""

    line: int
    cells: list[str]


def read_rows(file: str, text: str, *, complete: bool) -> Iterator[CsvRow]:
    """Yield the complete rows, without blank lines; raise ``DataError`` if a row cannot be read."""
    reader = csv_reader(io.StringIO(text, newline=""), strict=True)
    last: CsvRow | None = None
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            if not complete and reader.line_num >= text.count("\n"):
                break  # the quote may be closed in the part that was not read
            raise DataError(
                ValidationIssue(
                    f"the line cannot be read as CSV: {error}",
                    hint="close every quotation mark, and double those inside a cell",
                    file=file,
                    line=line,
                    key=_quoted_column(text, line),
                )
            ) from error
        if last:
            yield last
        last = CsvRow(line, cells) if cells else None
    if last and (complete or text.endswith("\n")):
        yield last


def is_number(text: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


_HEAD = 4_096

_SIGNATURES = {
    b"PK\x03\x04": ("a zip archive or an Excel workbook", "give it a name that ends in .zip or .xlsx"),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "give it a name that ends in .xls"),
    b"\x1f\x8b": ("compressed with gzip", "give it a name that ends in .csv.gz"),
    b"BZh": ("compressed with bzip2", "unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "give it a name that ends in .csv.zst"),
    b"\xfd7zXZ": ("compressed with xz", "unpack it"),
    b"PAR1": ("Parquet", "give it a name that ends in .parquet, or set [data] format"),
    b"%PDF": ("a PDF document", "export the table as CSV"),
    b"SQLite format 3": ("an SQLite database", "export the table as CSV"),
    b"\x93NUMPY": ("a NumPy array", "save it as CSV with a header"),
    b"\x89HDF": ("an HDF5 file", "save it as CSV or Parquet"),
    b"<": ("HTML or XML", "export the table as CSV, or open it in Excel and save it as .xlsx"),
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
            ValidationIssue(
                "the file is binary, not CSV",
                hint="export the table as CSV in UTF-8",
                file=path.name,
                line=head.count(b"\n", 0, head.find(b"\0")) + 1,
                found="a NUL byte",
            )
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
                f"the file is binary, not CSV{where}",
                hint="export the table as CSV in UTF-8",
                file=file,
                line=head.count(b"\n", 0, nul) + 1 if nul >= 0 else None,
                key=_column_of_byte(head, nul) if nul >= 0 else "",
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
        key=_column_of_byte(head, position),
        found=f"0x{head[position]:02X}",
        expected="UTF-8",
    )
