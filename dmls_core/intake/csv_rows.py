"""The rows of a CSV's beginning, with their lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from dmls_core.errors import DataError, ValidationIssue


@dataclass(frozen=True, slots=True)
class Row:
    """A row and the line that it starts on, counted from 1."""

    line: int
    cells: list[str]


def read_rows(file: str, text: str, *, complete: bool) -> Iterator[Row]:
    """Yield the rows that are there as a whole, blank lines left out.

    Raises:
        DataError: a row cannot be read.
    """
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
                break  # a quote that is closed beyond what was read
            raise DataError(
                ValidationIssue(
                    f"the line cannot be read as CSV: {error}",
                    hint="is a quotation mark not closed, or not doubled within a cell?",
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
    """Say whether a cell reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
