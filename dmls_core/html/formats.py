"""Numbers, texts, times and tables as pages and commands show them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

_NAME_LENGTH = 60
"""Characters of a name on a page at most."""

_SETTING_LENGTH = 24
"""Characters of a hyperparameter's value at most."""

_CELL_LENGTH = 2_000


class Formatted(str):
    """A number already written as text; tables align it to the right, like other numbers."""

    __slots__ = ()


def number(value: float) -> str:
    """Return a number with about five significant digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "not defined"
    size = abs(value)
    if size and (size < 0.1 or size >= 1e10):
        return f"{value:.4g}"
    return f"{value:,.{decimals(size)}f}"


def decimals(size: float) -> int:
    """Return the number of decimals shown for a number of this size."""
    return max(0, min(4, 4 - math.floor(math.log10(size)))) if size else 4


def brief(value: float) -> str:
    """Return a float with at least four significant digits; 1.0 stays distinct from the integer 1."""
    if 1e4 <= abs(value) < 1e10:
        return f"{value:,.0f}"
    text = f"{value:,.4g}"
    return text if "e" in text or "." in text or not math.isfinite(value) else f"{text}.0"


def setting(value: object) -> object:
    """Return a hyperparameter's value as a table shows it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shorten("none" if value is None else value, _SETTING_LENGTH)
    return Formatted(value if isinstance(value, int) else brief(value))


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts: ``1 trial``, ``2,000 trials``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def at_most(number: int, noun: str) -> str:
    """Return a limit and what it counts: ``1 trial``, ``up to 12 trials``."""
    return counted(number, noun) if number == 1 else f"up to {counted(number, noun)}"


def describe_refit(result: Mapping[str, Any]) -> str:
    """Return how the model of ``result.json`` differs from its trial, as a sentence; empty if it does not."""
    model, trial = result["best_params"], result.get("trial_params") or {}
    other = [name for name in sorted(trial) if name in model and model[name] != trial[name]]
    if not other or result.get("ensemble"):
        return ""
    values = ", ".join(f"{name} = {trial[name]}" for name in other)
    return (
        f"Trial {result['best_trial']} had {values}. The last fit may have another learning rate, and "
        "[deploy] compact leaves rounds out: both change the number of rounds."
    )


def describe_model(result: Mapping[str, Any]) -> str:
    """Return the model of ``result.json`` in a few words: its name, or the members of an ensemble."""
    return describe_ensemble(result["ensemble"]) if result.get("ensemble") else str(result["model"])


def describe_ensemble(ensemble: Mapping[str, Any]) -> str:
    """Return ``ensemble`` of ``result.json`` as text: its models, or its trials and their weights."""
    members = ensemble["members"]
    if len(models := {member.get("model") for member in members}) > 1:
        each = [f"{member['model']} (trial {member['trial']})" for member in members]
        return f"the mean of {len(models)} models: {enumerate_texts(each)}"
    trials = ", ".join(f"{member['trial']} (weight {member['weight']:.2f})" for member in members)
    return f"the mean of {len(members)} trials: {trials}"


def enumerate_texts(texts: Sequence[str]) -> str:
    """Return texts as one: ``a``, ``a and b``, or ``a, b and c``."""
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last


def shorten(text: object, length: int = _NAME_LENGTH) -> str:
    """Cut a text in the middle: names with the same beginning often differ at the end."""
    shown = str(text)
    if len(shown) <= length:
        return shown
    end = (length - 1) // 2
    return f"{shown[: length - 1 - end]}…{shown[-end:]}"


def sentence(text: str) -> str:
    """Return a text with a capital first letter; a name such as ``roc_auc`` stays as it is."""
    return text if "_" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


def _is_number(value: object) -> bool:
    """Return whether a table aligns the value to the right."""
    return isinstance(value, int | float | Formatted) and not isinstance(value, bool)


def cell(value: object) -> str:
    """Return a table cell's text; ``None`` is an empty cell."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return shorten(value, _CELL_LENGTH)


_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))


def ago(value: str | datetime | None) -> str:
    """Return a time relative to now: ``3 minutes ago``, ``in 2 hours``; empty for no time."""
    if not value:
        return ""
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    seconds = (datetime.now(UTC) - (when if when.tzinfo else when.replace(tzinfo=UTC))).total_seconds()
    for unit, size in _UNITS:
        if abs(seconds) >= size:
            count = int(abs(seconds) // size)
            length = f"{count} {unit}{'s' if count > 1 else ''}"
            return f"{length} ago" if seconds > 0 else f"in {length}"
    return "just now" if seconds >= 0 else "in a moment"


def file_size(count: float) -> str:
    """Return a number of bytes as ``3.2 MiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def duration(seconds: float | None) -> str:
    """Return a duration as ``42 s``, ``3 min``, or ``2.5 h``; empty for ``None``."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_MAX_HEADER_LENGTH = 80
"""Characters of all column headers of a matrix; longer headers are replaced by row numbers."""


@dataclass(frozen=True)
class TableData:
    """Rows below a header.

    Attributes:
        header: names of the columns; without any name, the first cell of each row is the row's header.
        rows: the cells: numbers, texts, or ``None`` for an empty cell.
        style: CSS classes of the table.
        highlighted: index of a row to highlight.
        muted: index of the first row that is gray, as all below it are.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    style: str = ""
    highlighted: int | None = None
    muted: int | None = None

    @cached_property
    def has_header(self) -> bool:
        """True if any column has a name."""
        return any(self.header)

    @cached_property
    def numeric(self) -> list[bool]:
        """For each column, whether all of its cells are numbers or empty."""
        return [
            bool(self.rows) and all(row[at] is None or _is_number(row[at]) for row in self.rows)
            for at in range(len(self.header))
        ]


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix, rows of true classes; cells are shaded by their share of the row."""

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]

    @cached_property
    def _numbered(self) -> bool:
        return sum(min(len(label), 16) for label in self.labels) > _MAX_HEADER_LENGTH

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
