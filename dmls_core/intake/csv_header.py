"""Does the header of a CSV fit the spec?"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmls_core.errors import ValidationIssue
from dmls_core.intake.csv_rows import Row, is_number

if TYPE_CHECKING:
    from dmls_core.spec import Spec

_COMPARISONS = 5_000
"""Names compared for suggestions in one file; each costs some 40 microseconds."""

_LONGEST = 60
"""Characters of a name that are compared, which takes time quadratic in their number."""

_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def check_header(file: str, header: Row, spec: Spec, max_columns: int) -> list[ValidationIssue]:
    """Return what is wrong with the header: delimiter, empty and double names, columns that are missing."""
    return _check_shape(file, header, max_columns) or [
        *_check_each(file, header),
        *check_columns(file, header, spec),
    ]


def check_names(file: str, header: Row, max_columns: int) -> list[ValidationIssue]:
    """Return what is wrong with the header whatever the spec: delimiter, empty and double names."""
    return _check_shape(file, header, max_columns) or _check_each(file, header)


def _check_shape(file: str, header: Row, max_columns: int) -> list[ValidationIssue]:
    names = header.cells
    if len(names) == 1:
        for delimiter, plural in _OTHER_DELIMITERS.items():
            if delimiter in names[0]:
                return [
                    ValidationIssue(
                        f"the columns are separated by {plural}, not commas",
                        hint="save it with commas between the columns",
                        file=file,
                        line=header.line,
                        found=repr(delimiter),
                        expected="','",
                    )
                ]
    if len(names) > max_columns:
        return [
            ValidationIssue(
                "the file has too many columns",
                hint="leave out those that the spec does not use",
                file=file,
                line=header.line,
                found=str(len(names)),
                expected=f"at most {max_columns}",
            )
        ]
    return []


def _check_each(file: str, header: Row) -> list[ValidationIssue]:
    names = header.cells
    issues = [
        ValidationIssue(
            f"column {position} has no name",
            hint="name every column; pandas writes its index without one unless told index=False",
            file=file,
            line=header.line,
        )
        for position, name in enumerate(names, start=1)
        if not name.strip()
    ]
    places: dict[str, list[str]] = {}
    for position, name in enumerate(names, start=1):
        places.setdefault(name, []).append(str(position))
    issues += [
        ValidationIssue(
            f"{len(found)} columns are named {name!r}",
            hint="give every column a name of its own",
            file=file,
            line=header.line,
            found=", ".join(found),
        )
        for name, found in places.items()
        if len(found) > 1 and name.strip()
    ]
    return issues


def check_columns(file: str, header: Row, spec: Spec) -> list[ValidationIssue]:
    """Return which of the spec's columns the header lacks."""
    present = set(header.cells)
    columns = spec.columns
    wanted: dict[str, list[str]] = {}
    for key in ("features", "target", "categorical", "drop", "sensitive", "id", "time", "weight"):
        value = getattr(columns, key)
        for name in (value,) if isinstance(value, str) else value or ():
            wanted.setdefault(name, []).append(key)
    missing = {name: keys for name, keys in wanted.items() if name not in present}
    if missing and all(is_number(name) for name in header.cells):
        return [
            ValidationIssue(
                "the file has no header: its first line holds numbers",
                hint="put a line with the names of the columns first",
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
    """Say which column may be meant, out of those by their folded names; a similar one if asked for."""
    close = folded.get(name.strip().casefold())
    if close is None and similar:
        cut = {text[:_LONGEST]: column for text, column in folded.items()}
        found = difflib.get_close_matches(name.casefold()[:_LONGEST], cut, n=1, cutoff=0.6)
        close = cut[found[0]] if found else None
    if close is None:
        return "correct the name in the spec, or add the column to the file"
    return f"did you mean {close!r}?"
