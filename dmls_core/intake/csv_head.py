"""Does the beginning of a CSV fit the spec? What can be said without reading it all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.csv_header import check_header
from dmls_core.intake.csv_rows import Row, is_number, read_rows
from dmls_core.intake.text_head import decode_head

if TYPE_CHECKING:
    from dmls_core.spec import Spec

MAX_RAGGED = 10
"""Rows of a wrong length that are reported one by one."""

_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


def check_csv_head(
    file: str, head: bytes, spec: Spec, *, complete: bool, max_columns: int
) -> list[ValidationIssue]:
    """Return what is wrong with the beginning of a CSV file; empty if nothing is.

    Args:
        file: name for the messages.
        head: the first bytes.
        spec: names the columns that must be there.
        complete: whether ``head`` is the whole file.
        max_columns: columns that a file may have.
    """
    try:
        text = decode_head(file, head, complete=complete)
        rows = list(read_rows(file, text, complete=complete))
    except DataError as error:
        return list(error.issues)
    if not rows:
        return [
            ValidationIssue(
                "the header is longer than what is looked at", hint="shorten it", file=file, line=1
            )
        ]
    # Training takes names without the blanks around them.
    header, body = Row(rows[0].line, [name.strip() for name in rows[0].cells]), rows[1:]
    issues = check_header(file, header, spec, max_columns)
    if not body and complete:
        issues.append(
            ValidationIssue(
                "the file has a header and no rows", hint="drop it again with its rows", file=file
            )
        )
    if issues:
        return issues
    return [
        *_check_lengths(file, header, body),
        *_check_target(file, header, body, spec, complete=complete),
    ]


def _check_lengths(file: str, header: Row, body: list[Row]) -> list[ValidationIssue]:
    expected = len(header.cells)
    ragged = [row for row in body if len(row.cells) != expected]
    issues = [
        ValidationIssue(
            "the row has " + ("too many" if len(row.cells) > expected else "too few") + " cells",
            hint="is a comma missing, or one within a cell that needs quotation marks?",
            file=file,
            line=row.line,
            found=f"{len(row.cells)} cells",
            expected=f"{expected} cells",
        )
        for row in ragged[:MAX_RAGGED]
    ]
    if len(ragged) > MAX_RAGGED:
        issues.append(ValidationIssue(f"{len(ragged) - MAX_RAGGED} more rows have a wrong length", file=file))
    return issues


def _check_target(
    file: str, header: Row, body: list[Row], spec: Spec, *, complete: bool
) -> list[ValidationIssue]:
    target = spec.columns.target
    position = header.cells.index(target)
    cells = [(row.line, row.cells[position].strip()) for row in body if position < len(row.cells)]
    present = [(line, cell) for line, cell in cells if cell.lower() not in _MISSING]
    if not complete and (spec.task == "classification" or not present):
        return []
    if not present:
        message, hint = "is empty in every row", "fill it in, or name another column as target"
    elif spec.task == "classification" and len({cell for _, cell in present}) == 1:
        message, hint = "has one class only; a classifier needs at least two", "add rows of other classes"
    elif spec.task == "regression" and not any(is_number(cell) for _, cell in present):
        message, hint = (
            "holds no numbers; a regressor needs them",
            "name another target, or take a classifier",
        )
    else:
        return []
    line, example = present[0] if present else (None, "")
    return [
        ValidationIssue(
            f"the target {target!r} {message}",
            hint=hint,
            file=file,
            line=line,
            key="columns.target",
            found=example,
        )
    ]
