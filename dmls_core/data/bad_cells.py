"""Errors that name the cells of a user's rows that the model cannot take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dmls_core.data.encoder import BadCell, CellError
from dmls_core.errors import DataError, ValidationIssue

Place = tuple[int | None, int | None]
"""Line and field of a cell, from 1; None where the format has none."""


def describe_cells(
    error: CellError, *, file: str = "", locate: Callable[[BadCell], Place] | None = None
) -> DataError:
    """Return an error with an issue for each cell; ``locate`` returns where in ``file`` a cell is.

    Raise it ``from error``: whoever knows the places of the cells describes them again.
    """
    issues = []
    for cell in error.cells:
        line, field = locate(cell) if locate else (None, None)
        issues.append(ValidationIssue(str(cell), file=file, line=line, column=field))
    if error.more:
        issues.append(ValidationIssue("there are more such values", file=file))
    return DataError(issues)


def shifted(error: CellError, rows: int) -> CellError:
    """Return the error of a part of the rows, before which there are ``rows``, as one of all rows."""
    return CellError([replace(cell, row=cell.row + rows) for cell in error.cells], more=error.more)
