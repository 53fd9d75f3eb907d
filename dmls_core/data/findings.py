"""What is wrong with the values of a column, first without its line, then with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmls_core.errors import ValidationIssue

if TYPE_CHECKING:
    from dmls_core.data.files import Files


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a column.

    Attributes:
        column: its name.
        message: what is wrong, to be read after the column's name.
        row: the first row that shows it, counted from 0 over all files; None if no single row does.
        found: what was found, where it is not the value of that row.
        expected: what would be right.
        hint: how to mend it.
    """

    column: str
    message: str
    row: int | None = None
    found: str = ""
    expected: str = ""
    hint: str = ""


def place(findings: Sequence[Finding], files: Files, most: int) -> list[ValidationIssue]:
    """Say where in the files the findings stand.

    Args:
        findings: of columns that were read from the files.
        files: where they were read.
        most: number of issues at most; the rest is counted.
    """
    shown = findings[:most]
    located = files.locate({(finding.row, finding.column) for finding in shown if finding.row is not None})
    issues = []
    for finding in shown:
        message, line, found = finding.message, None, finding.found
        file = files.sources[0].path.name if len(files.sources) == 1 else ""
        if finding.row is not None:
            source, cell = located[finding.row, finding.column]
            file, line, found = source.path.name, cell.line, found or cell.text[:80]
            if line is None:  # this format has no lines
                message += f" (row {finding.row + 1})"
        issues.append(
            ValidationIssue(
                message,
                hint=finding.hint,
                file=file,
                line=line,
                key=finding.column,
                found=found,
                expected=finding.expected,
            )
        )
    if len(findings) > most:
        issues.append(ValidationIssue(f"{len(findings) - most} more columns have issues"))
    return issues
