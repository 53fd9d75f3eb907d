"""The rows of a sample, and which names of columns a spec can have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmls_core.errors import ValidationIssue

ROWS = 2_000
"""Largest number of rows in a sample."""

LONGEST_NAME = 256
"""Characters of the longest column name in a spec."""

SHOWN = 80

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a file: the first ones, and others spread over it.

    Attributes:
        names: the column names without surrounding blanks.
        columns: raw values, all columns of the same length: texts from CSV, values from Parquet.
        complete: whether these are all rows of the file.
        rows: number of rows in the file, if known.
        types: the type of each column; empty for a CSV.
        data: the keys of ``[data]`` that read the file.
        sheets: the visible sheets of a workbook.
        spread: whether the rows are from the whole file, not only from its beginning.
        extent: the part of a large file that the rows are from all over; empty if it is not known.
        notes: remarks on how the file was read.
        quoted: texts of missing values that a CSV has in quotes; see ``quoted_texts``.
    """

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    complete: bool
    rows: int | None = None
    types: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    sheets: tuple[str, ...] = ()
    spread: bool = True
    extent: str = ""
    notes: tuple[str, ...] = ()
    quoted: frozenset[str] = frozenset()

    @property
    def seen(self) -> int:
        """Return the number of rows in the sample."""
        return len(self.columns[0]) if self.columns else 0


def unfit_names(file: str, names: Iterable[str]) -> list[ValidationIssue]:
    """Return the issues of names that a spec cannot contain."""
    return [
        ValidationIssue(
            f"column {position} has a name that a spec cannot contain",
            hint="rename it",
            file=file,
            line=1,
            found=repr(name[:SHOWN]),
            expected=f"at most {LONGEST_NAME} characters, without control characters",
        )
        for position, name in enumerate(names, start=1)
        if len(name) > LONGEST_NAME or _CONTROL.search(name)
    ]
