"""Tables for the macros in ``templates/components.html``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dmls_core.html.formats import is_number, shorten

MAX_HEADER_LENGTH = 80
"""Characters of all column headers of a matrix; longer headers are replaced by row numbers."""


@dataclass(frozen=True)
class Table:
    """Rows below a header.

    Attributes:
        header: names of the columns; without any name, the first cell of each row is the row's header.
        rows: the cells: numbers, texts, or ``None`` for an empty cell.
        style: CSS classes of the table.
        highlighted: index of a row to highlight.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    style: str = ""
    highlighted: int | None = None

    @cached_property
    def has_header(self) -> bool:
        """True if any column has a name."""
        return any(self.header)

    @cached_property
    def numeric(self) -> list[bool]:
        """For each column, whether all of its cells are numbers or empty."""
        return [
            bool(self.rows) and all(row[at] is None or is_number(row[at]) for row in self.rows)
            for at in range(len(self.header))
        ]


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix, rows of true classes; cells are shaded by their share of the row."""

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]

    @cached_property
    def _numbered(self) -> bool:
        return sum(min(len(label), 16) for label in self.labels) > MAX_HEADER_LENGTH

    @cached_property
    def column_names(self) -> list[str]:
        """The column headers: class names, or the numbers of the rows if the names are too long."""
        return [
            str(at) if self._numbered else shorten(label, 16) for at, label in enumerate(self.labels, start=1)
        ]

    @cached_property
    def row_names(self) -> list[str]:
        """The row headers."""
        return [
            f"{at} {shorten(label, 30)}" if self._numbered else shorten(label, 24)
            for at, label in enumerate(self.labels, start=1)
        ]

    @cached_property
    def shares(self) -> list[list[float]]:
        """Share of its row in each cell, 0 to 1."""
        return [[count / max(1, sum(row)) for count in row] for row in self.counts]
