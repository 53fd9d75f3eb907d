"""Errors that name the cells of a user's rows that the model cannot take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from dmls_core.data.encoder import BadCell, CellError
from dmls_core.errors import DataError, ValidationIssue


class Place(NamedTuple):
    """Where a cell is: its line and field in a text, from 1, or its JSON pointer."""

    line: int | None = None
    column: int | None = None
    pointer: str = ""


PLAIN = "write plain numbers, such as 1234.5"


def describe_cells(
    error: CellError, *, file: str = "", locate: Callable[[BadCell], Place] | None = None
) -> DataError:
    """Return an error with an issue for each cell; ``locate`` returns where in ``file`` a cell is.

    Outside of a text, which ``[data]`` describes, numbers have no other notation: a hint says so.
    Raise it ``from error``: whoever knows the places of the cells describes them again.
    """
    issues = []
    for cell in error.cells:
        place = locate(cell) if locate else Place()
        is_written = cell.message.endswith("is not a number") and any(map(str.isdigit, cell.message))
        hint = PLAIN if is_written and place.line is None else ""
        issues.append(ValidationIssue(str(cell), hint, file, **place._asdict()))
    if error.more:
        issues.append(ValidationIssue("there are more such values", file=file))
    return DataError(issues)


def shifted(error: CellError, rows: int) -> CellError:
    """Return the error of a part of the rows, before which there are ``rows``, as one of all rows."""
    return CellError([replace(cell, row=cell.row + rows) for cell in error.cells], more=error.more)
