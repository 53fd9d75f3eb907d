"""Notes on rows that a model predicts although they are unlike those of its training.

The channels that predict share these rules. The module needs only ``encoder``, ``moments``, the standard
library and NumPy.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encoder import (  # noqa: TID252 - a logged model or an endpoint may have copies in another package
    BadCell,
    CategoryFeature,
    CellError,
    DateFeature,
    Encoder,
    Feature,
    NumberFeature,
    is_mark,
    is_missing,
)
from .moments import day_of, hour_of  # noqa: TID252

KINDS = UNKNOWN_CATEGORY, OUT_OF_RANGE, EMPTY_ROW = "unknown-category", "out-of-range", "empty-row"

_MAX_NOTES = 1_000
"""Cells of one call that are described; further ones are only counted."""
_MAX_LOOKUPS = 20
"""Texts of one call for which the nearest category is looked up."""
_MAX_CATEGORIES = 1_000
"""Categories among which it is looked up."""

_WORDS = {
    UNKNOWN_CATEGORY: ("unknown category", "unknown categories"),
    OUT_OF_RANGE: ("value out of the training's range", "values out of the training's range"),
    EMPTY_ROW: ("row without any value", "rows without any value"),
}

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class RowNote:
    """What is special about a row, from 0, or about its value in ``column``."""

    row: int
    column: str
    message: str

    def __str__(self) -> str:
        return f"column {self.column!r}: {self.message}" if self.column else self.message


@dataclass(frozen=True, slots=True)
class RowNotes:
    """Notes on the rows of a call: the first ``_MAX_NOTES``, and how many there are of each kind."""

    notes: tuple[RowNote, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def as_error(self) -> CellError:
        """Return the notes as an error, for those who want no such rows predicted."""
        return CellError(BadCell(note.row, note.column, note.message) for note in self.notes)

    def by_row(self) -> dict[int, list[str]]:
        """Return the notes of each row that has some."""
        texts: dict[int, list[str]] = {}
        for note in self.notes:
            texts.setdefault(note.row, []).append(str(note))
        return texts


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return the numbers of notes of each kind in words; empty without any."""
    return ", ".join(
        f"{counts[kind]:,} {words[counts[kind] != 1]}" for kind, words in _WORDS.items() if counts.get(kind)
    )


def find_notes(encoder: Encoder, columns: Mapping[str, Any], matrix: NDArray[np.float32]) -> RowNotes:
    """Return notes on unknown categories, values outside of the training's range, and rows without values.

    ``matrix`` is ``encoder.transform(columns)``: raw values are read only where it shows something special.
    """
    # A Series would be read by its index.
    columns = {
        name: np.asarray(columns[name]) if hasattr(columns[name], "dtype") else columns[name]
        for name in encoder.feature_names
    }
    notes: list[RowNote] = []
    counts: Counter[str] = Counter()
    lookups = _MAX_LOOKUPS
    for feature, codes in zip(encoder.features, _first_columns(encoder, matrix), strict=True):
        values = columns[feature.name]
        if isinstance(feature, CategoryFeature):
            rows = np.flatnonzero(codes == feature.unknown).tolist()
            if feature.unknown == feature.missing:
                rows = [row for row in rows if not _absent(values[row], feature)]
            counts[UNKNOWN_CATEGORY] += len(rows)
            messages: dict[str, str] = {}
            for row in rows[: _MAX_NOTES - len(notes)]:
                text = feature.text(values[row]) or ""
                if text not in messages:
                    messages[text] = _unknown(text, feature, lookup=lookups > 0)
                    lookups -= 1
                notes.append(RowNote(row, feature.name, messages[text]))
        elif feature.range:
            low, high = feature.range
            rows = np.flatnonzero((codes < low) | (codes > high)).tolist()
            counts[OUT_OF_RANGE] += len(rows)
            for row in rows[: _MAX_NOTES - len(notes)]:
                message = _outside(values[row], float(codes[row]), feature, low, high)
                notes.append(RowNote(row, feature.name, message))
    rows = _empty_rows(encoder, columns, matrix)
    counts[EMPTY_ROW] += len(rows)
    notes += [RowNote(row, "", "all columns of the model are missing") for row in rows[:_MAX_NOTES]]
    return RowNotes(tuple(sorted(notes, key=lambda note: note.row)[:_MAX_NOTES]), +counts)


def _first_columns(encoder: Encoder, matrix: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Return the column of the matrix with the code, the number, or the day or hour of each feature."""
    starts = np.cumsum([0, *(len(feature.columns) for feature in encoder.features)])
    return [matrix[:, start] for start in starts[:-1]]


def _empty_rows(encoder: Encoder, columns: Mapping[str, Any], matrix: NDArray[np.float32]) -> list[int]:
    rows = np.arange(len(matrix))
    for feature, codes in zip(encoder.features, _first_columns(encoder, matrix), strict=True):
        missing = _missing_code(feature)
        rows = rows[np.isnan(codes[rows]) if math.isnan(missing) else codes[rows] == missing]
        if not len(rows):
            return []
    return [
        row
        for row in rows.tolist()
        if all(_absent(columns[feature.name][row], feature) for feature in encoder.features)
    ]


def _missing_code(feature: Feature) -> float:
    if isinstance(feature, CategoryFeature):
        return feature.missing
    fill = feature.fill[0] if isinstance(feature, DateFeature) and feature.fill else feature.fill
    return math.nan if fill is None else float(np.float32(fill))  # type: ignore[arg-type]


def _absent(value: object, feature: Feature) -> bool:
    if isinstance(feature, CategoryFeature):
        return feature.text(value) is None
    return is_missing(value) or is_mark(value, feature.marks)


def _unknown(text: str, feature: CategoryFeature, *, lookup: bool) -> str:
    message = f"{text[:_SHOWN]!r} does not occur in the training data"
    if not lookup or len(feature.categories) > _MAX_CATEGORIES or len(text) > _SHOWN:
        return message
    plain = {category.casefold(): category for category in reversed(feature.categories)}
    close = difflib.get_close_matches(text.casefold(), plain, 1)
    return f"{message}; the nearest category is {plain[close[0]]!r}" if close else message


def _outside(
    value: object, number: float, feature: NumberFeature | DateFeature, low: float, high: float
) -> str:
    if isinstance(feature, NumberFeature):
        side = "below" if number < low else "above"
        return f"{number:g} is {side} the range of the training data, {low:g} to {high:g}"
    shown, noun = (day_of, "dates") if feature.days else (hour_of, "times")
    side = "before" if number < low else "after"
    text = str(value)[:_SHOWN]
    return f"{text} is {side} the {noun} of the training data, {shown(low)} to {shown(high)}"
