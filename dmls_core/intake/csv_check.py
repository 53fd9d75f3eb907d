"""Check the beginning of a CSV file against the spec."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dmls_core.data.formats.csv_dialect import (
    CsvRow,
    decode_head,
    is_number,
    ragged_column,
    read_rows,
    separator_issue,
)
from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    from dmls_core.spec import Spec

_MAX_RAGGED = 10
"""Number of rows of a wrong length that get their own message."""


def check_csv_head(
    file: str, head: bytes, spec: Spec, *, complete: bool, max_columns: int
) -> list[ValidationIssue]:
    """Return the issues of the beginning of a CSV file; ``complete`` if ``head`` is the whole file."""
    try:
        text = decode_head(file, head, complete=complete)
        rows = list(read_rows(file, text, complete=complete))
    except DataError as error:
        return list(error.issues)
    if not rows:
        return [
            ValidationIssue(
                "the header is longer than the checked part of the file",
                hint="shorten it",
                file=file,
                line=1,
            )
        ]
    # Training ignores blanks around a name.
    header, body = CsvRow(rows[0].line, [name.strip() for name in rows[0].cells]), rows[1:]
    issues = _check_header(file, header, spec, max_columns)
    if not body and complete:
        issues.append(
            ValidationIssue(
                "the file has a header and no rows", hint="upload it again with its rows", file=file
            )
        )
    if issues:
        return issues
    return [
        *_check_lengths(file, header, body),
        *_check_target(file, header, body, spec, complete=complete),
    ]


def length_hint(header: CsvRow, body: Sequence[CsvRow]) -> str:
    """Return a hint on rows that are longer or shorter than the header."""
    width = len(header.cells)
    if len(body[-1].cells) < width and all(len(row.cells) == width for row in body[:-1]):
        return "if this is the last row, the file is incomplete: upload it again; else add what is missing"
    if any(len(row.cells) != width + 1 for row in body):
        return "is a comma missing, or one within a cell that needs quotation marks?"
    if not any(row.cells[-1].strip() for row in body):
        return "each row ends with a separator: remove it, or add one to the header"
    return "the header lacks a name: R writes row names without one, unless row.names = FALSE"


def _check_lengths(file: str, header: CsvRow, body: list[CsvRow]) -> list[ValidationIssue]:
    expected = len(header.cells)
    ragged = [row for row in body if len(row.cells) != expected]
    issues = [
        ValidationIssue(
            "the row has " + ("too many" if len(row.cells) > expected else "too few") + " cells",
            hint=length_hint(header, body),
            file=file,
            line=row.line,
            key=ragged_column(header.cells, len(row.cells)),
            found=f"{len(row.cells)} cells",
            expected=f"{expected} cells",
        )
        for row in ragged[:_MAX_RAGGED]
    ]
    if len(ragged) > _MAX_RAGGED:
        issues.append(
            ValidationIssue(f"{len(ragged) - _MAX_RAGGED} more rows have a wrong length", file=file)
        )
    return issues


def _check_target(
    file: str, header: CsvRow, body: list[CsvRow], spec: Spec, *, complete: bool
) -> list[ValidationIssue]:
    target = spec.columns.target
    position = header.cells.index(target)
    cells = [(row.line, row.cells[position].strip()) for row in body if position < len(row.cells)]
    # Not above: the DAG files import this module, and must not import NumPy.
    from dmls_core.data.encoder import is_missing

    present = [(line, cell) for line, cell in cells if not is_missing(cell, spec.data.not_missing)]
    if not complete and (spec.task == "classification" or not present):
        return []
    if not present:
        message, hint = "is empty in every row", "fill it, or name another column as target"
    elif spec.task == "classification" and len({cell for _, cell in present}) == 1:
        message, hint = "has only one class; a classifier needs at least two", "add rows of other classes"
    elif spec.task == "regression" and not any(is_number(cell) for _, cell in present):
        message, hint = (
            "contains no numbers, which a regressor needs",
            "name another target, or use a classifier",
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


_COMPARISONS = 5_000
"""Names compared for suggestions in one file, at about 40 microseconds each."""

_LONGEST = 60
"""Length of the longest name compared; the time grows with its square."""


def _check_header(file: str, header: CsvRow, spec: Spec, max_columns: int) -> list[ValidationIssue]:
    """Return the issues of the header: separator, empty and duplicate names, missing columns."""
    return _check_shape(file, header, max_columns) or [
        *_check_each(file, header),
        *check_columns(file, header, spec),
    ]


def check_names(file: str, header: CsvRow, max_columns: int) -> list[ValidationIssue]:
    """Return the issues of the header that need no spec: separator, empty and duplicate names."""
    return _check_shape(file, header, max_columns) or _check_each(file, header)


def _check_shape(file: str, header: CsvRow, max_columns: int) -> list[ValidationIssue]:
    names = header.cells
    if issue := separator_issue(file, names, header.line):
        return [issue]
    if len(names) > max_columns:
        return [
            ValidationIssue(
                "the file has too many columns",
                hint="remove those that the spec does not use",
                file=file,
                line=header.line,
                found=str(len(names)),
                expected=f"at most {max_columns}",
            )
        ]
    return []


def _naming_hint(position: int, columns: int) -> str:
    if position == 1:
        return "name every column; pandas writes its index without a name: use to_csv(index=False)"
    if position == columns:
        return "name it, or remove the separator at the end of each line"
    return "name every column"


def _check_each(file: str, header: CsvRow) -> list[ValidationIssue]:
    names = header.cells
    issues = [
        ValidationIssue(
            f"column {position} has no name",
            hint=_naming_hint(position, len(names)),
            file=file,
            line=header.line,
        )
        for position, name in enumerate(names, start=1)
        if not name.strip()
    ]
    issues += [
        ValidationIssue(
            f"column {position} has a name in double quotes behind a blank",
            hint="remove the blanks between the separators and the double quotes",
            file=file,
            line=header.line,
            found=name[:80],
        )
        for position, name in enumerate(names, start=1)
        if len(name) > 2 and name[0] == name[-1] == '"'
    ]
    positions: dict[str, list[str]] = {}
    for position, name in enumerate(names, start=1):
        positions.setdefault(name, []).append(str(position))
    issues += [
        ValidationIssue(
            f"{len(positions_of_name)} columns are named {name!r}",
            hint="give each column a different name",
            file=file,
            line=header.line,
            key=name,
            found=", ".join(positions_of_name),
        )
        for name, positions_of_name in positions.items()
        if len(positions_of_name) > 1 and name.strip()
    ]
    return issues


def check_columns(file: str, header: CsvRow, spec: Spec) -> list[ValidationIssue]:
    """Return an issue for each of the spec's columns that the header lacks."""
    present = set(header.cells)
    columns = spec.columns
    keys_by_name: dict[str, list[str]] = {}
    keys = ("features", "target", "categorical", "dates", "drop", "sensitive", "id")
    for key in (*keys, "time", "group", "weight"):
        value = getattr(columns, key)
        for name in (value,) if isinstance(value, str) else value or ():
            keys_by_name.setdefault(name, []).append(key)
    missing = {name: keys for name, keys in keys_by_name.items() if name not in present}
    if missing and all(is_number(name) for name in header.cells):
        return [
            ValidationIssue(
                "the file has no header: its first line contains numbers",
                hint="add a first line with the column names",
                file=file,
                line=header.line,
                found=", ".join(header.cells)[:80],
            )
        ]
    shown = ", ".join(header.cells)
    folded = {column.strip().casefold(): column for column in header.cells}
    suggested = max(1, _COMPARISONS // max(1, len(folded)))
    return [
        ValidationIssue(
            f"the column {name!r} is not in the file",
            hint=_did_you_mean(name, folded, similar=number < suggested),
            file=file,
            line=header.line,
            key=f"columns.{keys[0]}",
            found=shown if len(shown) <= 200 else f"{shown[:200]}...",
            expected=name,
        )
        for number, (name, keys) in enumerate(missing.items())
    ]


def _did_you_mean(name: str, folded: Mapping[str, str], *, similar: bool) -> str:
    """Return a hint with the column that differs only in case, or with the most similar one."""
    close = folded.get(name.strip().casefold())
    if close is None and similar:
        cut = {text[:_LONGEST]: column for text, column in folded.items()}
        matches = difflib.get_close_matches(name.casefold()[:_LONGEST], cut, n=1, cutoff=0.6)
        close = cut[matches[0]] if matches else None
    if close is None:
        return "correct the name in the spec, or add the column to the file"
    return f"did you mean {close!r}?"
