"""Sentences on columns that give others away, and on what a run leaves out: remarks that refuse nothing.

The form, the command line and ``_status`` use the same words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import category_text, is_missing
from dmls_core.data.formats.missing_marks import count_missing, find_values
from dmls_core.data.leaks import Relation
from dmls_core.data.table.columns import PADDED

MOST = 8
"""Columns, or relations between columns, in the notes."""

_FILL_VALUE = re.compile(r"-?9{3,}|-99|-[1-9]00+")
"""Numbers that people and devices write where a value is missing."""

_FILLED = 3
"""Rows with such a number at least."""

_REPEATED = 0.05
"""Share of rows that repeat earlier ones from which this is noted."""


def relation_notes(relations: Sequence[Relation], target: str) -> list[str]:
    """Return the columns that give the target away, then those that give each other away."""
    of_target = [one for one in relations if one.concerns(target)]
    others = [one for one in relations if one.both and one not in of_target]
    return [_remedy(one, target) for one in (*of_target, *others)[:MOST]]


def _remedy(relation: Relation, target: str) -> str:
    """Return what to do about a relation: of the target and its twin, only one is a feature."""
    if not (relation.both and relation.concerns(target)):
        return relation.message
    twin = relation.column if relation.other == target else relation.other
    return f"{twin} and {target} hold the same information: take {twin} out of the features."


def first_padded(values: Iterable[object]) -> str:
    """Return the first text with leading zeros in a column of integers; empty if there is none."""
    texts = [value.strip() for value in values if isinstance(value, str) and not is_missing(value)]
    if any("." in text for text in texts):
        return ""
    return next((text for text in texts if re.match(PADDED, text)), "")


def padded_notes(categories: Sequence[tuple[str, str]], numbers: Sequence[tuple[str, str]]) -> list[str]:
    """Return sentences on columns with leading zeros, each with one of its texts."""
    notes = []
    if categories:
        notes.append(f"Read as categories, since numbers lack their leading zeros: {_listed(categories)}.")
    if numbers:
        notes.append(
            f"Read as numbers, without their leading zeros: {_listed(numbers)}. "
            "Name those that are codes in [columns] categorical."
        )
    return notes


def missing_texts_note(
    columns: Mapping[str, Sequence[Any]],
    target: str,
    not_missing: Collection[str],
    *,
    quoted: Collection[str],
    complete: bool,
) -> str:
    """Return a sentence on texts that are read as missing values in columns of texts, given by raw values.

    ``quoted`` are texts in quotes where others have none. ``complete`` says whether these are all rows. The
    sentence is empty if there are no such texts.
    """
    remarks, values = [], dict[str, None]()
    for name, cells in columns.items():
        missing = count_missing(cells, not_missing)
        if not missing:
            continue
        rows = (f"{text!r} in {count:,} row{'s' * (count > 1)}" for text, count in missing.most_common())
        remarks.append((name, ", ".join(rows)))
        others = Counter(text for cell in cells if (text := category_text(cell, not_missing)) is not None)
        values |= dict.fromkeys(find_values(missing, others, quoted, is_target=name == target))
    if not remarks:
        return ""
    note = f"{'Read' if complete else 'In a sample, read'} as missing values: {_listed(remarks)}."
    if not values:
        return note
    texts, listed = " or ".join(map(repr, values)), ", ".join(f'"{text}"' for text in [*not_missing, *values])
    return f"{note} If {texts} is a value there, set [data] not_missing = [{listed}]."


def left_out_note(columns: Sequence[tuple[str, str]]) -> str:
    """Return a sentence on columns that are no features, each with its reason; empty if there are none."""
    if not columns:
        return ""
    return f"Left out of the training: {_listed(columns)}."


def _listed(columns: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{name} ({remark})" for name, remark in columns[:MOST])
    more = f", and {len(columns) - MOST:,} more" if len(columns) > MOST else ""
    return f"{shown}{more}"


def repeated_note(repeated: int, rows: int) -> str:
    """Return a sentence on rows that repeat earlier ones; empty if they are few."""
    if repeated <= _REPEATED * rows:
        return ""
    return (
        f"{repeated:,} of {rows:,} rows repeat earlier ones: set [evaluation] group_duplicates, "
        "so that no row is held out while its copy is trained on."
    )


def sheets_note(sheet: str, tables: Mapping[str, int]) -> str:
    """Return a sentence on the sheets of a workbook that are not read; empty if there are none."""
    others = [f"{name!r} ({rows:,} rows)" for name, rows in tables.items() if name != sheet and rows > 0]
    if not others:
        return ""
    more = f" and {len(others) - MOST:,} more" if len(others) > MOST else ""
    return (
        f"Of the workbook, only the sheet {sheet!r} ({tables[sheet]:,} rows) is read, not "
        f"{', '.join(others[:MOST])}{more}: choose one with [data] sheet, or put the rows into one sheet."
    )


def fill_value_note(columns: Iterable[tuple[str, NDArray[Any]]]) -> str:
    """Return a sentence on numbers that may stand for missing values: usual ones, far from all others."""
    filled = []
    for name, values in columns:
        present = values[~np.isnan(values)]
        if not len(present):
            continue
        low, high = float(present.min()), float(present.max())
        for value in (low, high):
            if not _FILL_VALUE.fullmatch(f"{value:.10g}"):
                continue
            others = present[present != value]
            rows = len(present) - len(others)
            if rows < _FILLED or not len(others):
                continue
            near, far = float(others.min()), float(others.max())
            if near > value / 2 if value < 0 else far < value / 2:
                filled.append(f"{value:g} in {rows:,} rows of {name} (the others: {near:g} to {far:g})")
    if not filled:
        return ""
    more = f"; {len(filled) - MOST:,} more" if len(filled) > MOST else ""
    return (
        "Read as numbers, but they may stand for missing values: "
        f"{'; '.join(filled[:MOST])}{more}. If so, empty these cells."
    )
