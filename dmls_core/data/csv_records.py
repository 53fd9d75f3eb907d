"""Read the records of a CSV file one by one, with their line numbers.

Polars reads the data itself. It is fast, but does not report the line of an error, and fills a record that is
too short with missing values.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dmls_core.errors import DataError, ValidationIssue

_RECORD = 64 * 2**20
"""Largest size of one record in bytes."""


class Record(NamedTuple):
    """One record; a tuple, because there may be millions.

    ``line`` counts from 1; ``raw`` excludes the line end; ``lines`` is above 1 with line breaks in quotes.
    """

    line: int
    raw: bytes
    lines: int = 1

    def fields(self) -> list[str]:
        """Return the fields; bytes that are not UTF-8 are escaped."""
        text = self.raw.decode("utf-8", errors="backslashreplace")
        # The limit is global, and other code may rely on it.
        limit = csv.field_size_limit(_RECORD)
        try:
            return next(csv.reader([text]), [])
        except csv.Error:  # a carriage return outside quotes
            return text.split(",")
        finally:
            csv.field_size_limit(limit)

    def n_fields(self) -> int:
        """Return the number of fields."""
        return len(self.fields()) if b'"' in self.raw else self.raw.count(b",") + 1


def records(path: Path) -> Iterator[Record]:
    """Yield all records, also empty ones; raise ``DataError`` if one is too long or a quote stays open."""
    with path.open("rb") as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        line = 1
        while raw := file.readline(_RECORD):
            lines = 1
            while raw.count(b'"') % 2 and len(raw) < _RECORD:
                more = file.readline(_RECORD)
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
                raw += more
                lines += 1
            if len(raw) >= _RECORD:
                raise DataError(
                    ValidationIssue(f"the record is longer than {_RECORD:,} bytes", file=path.name, line=line)
                )
            yield Record(line, raw.removesuffix(b"\n").removesuffix(b"\r"), lines)
            line += lines


def check_structure(path: Path, header_lines: int, n_columns: int) -> list[ValidationIssue]:
    """Return the first record with a wrong number of fields, and the first that is not UTF-8."""
    found: list[ValidationIssue] = []
    ragged: ValidationIssue | None = None
    others = 0
    undecodable = False
    try:
        for record in records(path):
            if record.line <= header_lines or not record.raw:
                continue
            if not undecodable and not record.raw.isascii() and not _is_utf8(record.raw):
                undecodable = True
                found.append(not_utf8(path, record.line, record.raw))
            if (n_fields := record.n_fields()) != n_columns:
                others += ragged is not None
                ragged = ragged or ValidationIssue(
                    f"the record has {n_fields} field{'s' * (n_fields != 1)}, the header {n_columns}",
                    file=path.name,
                    line=record.line,
                    found=_shown(record.raw),
                    expected=f"{n_columns} fields",
                    hint="a comma or double quote inside a value needs double quotes around the value"
                    if n_fields > n_columns
                    else "leave a missing value empty but keep its comma",
                )
    except DataError as error:
        found.extend(error.issues)
    if ragged:
        found.append(ragged)
        if others:
            found.append(
                ValidationIssue(f"{others} more records have too many or too few fields", file=path.name)
            )
    return found


def find_records(path: Path, header_lines: int, rows: Collection[int]) -> dict[int, Record]:
    """Return the records of rows, counted from 0 below the header; an empty record counts."""
    below = (record for record in records(path) if record.line > header_lines)
    wanted = set(rows)
    return {row: record for row, record in zip(range(max(wanted) + 1), below, strict=False) if row in wanted}


def not_utf8(path: Path, line: int, raw: bytes) -> ValidationIssue:
    """Return the issue of a record that is not UTF-8."""
    return ValidationIssue(
        "the text is not UTF-8",
        file=path.name,
        line=line,
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
class Row:
    """A row and the line where it begins, from 1."""

    line: int
    cells: list[str]


def read_rows(file: str, text: str, *, complete: bool) -> Iterator[Row]:
    """Yield the complete rows, without blank lines; raise ``DataError`` if a row cannot be read."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    last: Row | None = None
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
                )
            ) from error
        if last:
            yield last
        last = Row(line, cells) if cells else None
    if last and (complete or text.endswith("\n")):
        yield last


def is_number(text: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
