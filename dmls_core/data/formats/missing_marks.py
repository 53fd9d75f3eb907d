"""Marks of missing values, such as ``-`` in a column of numbers: found in a sample, removed from data files.

Some texts are always read as missing values (see ``encoder.MISSING``); ``[data] missing`` adds others, and
``[data] not_missing`` takes some of them away.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from dmls_core.data.encoder import MISSING, is_mark, is_missing
from dmls_core.data.formats.csv_dialect import is_number

if TYPE_CHECKING:
    import polars as pl

_WORDS = frozenset(
    {"\\n", "n.a.", "n.a", "na.", "n/d", "n.d.", "n.v.", "nil", "none", "null", "(null)", "[null]"}
    | {"missing", "unknown", "undefined", "not available", "no data", "blank", "(blank)", "empty"}
    | {"#ref!", "#value!", "#div/0!", "#null!", "#name?", "#num!", "k.a.", "k. a.", "s/d", "s.d.", "n/e"}
    | {"n/a", "na", "#n/a"}
)
"""Marks that have letters, in lower case; ``nan`` is none, since every spelling of it is a number."""

_SYMBOLS = re.compile(r"[-?.*_~/\u2013\u2014\u2212·•… ]{1,12}")
_NUMBER = re.compile(r"[+-]?(?:\d[\d., '\u2019\u00a0\u202f]*|[.,]\d+)(?:[eE][+-]?\d+)?")

_FEW = 3
"""Different marks of one column at most."""

_MOST = 20
"""Marks that a spec can have."""

_SHARE = 0.1
"""Smallest share of numbers, or dates, in a column with marks."""

_UNQUOTED = re.compile(r'(?:^|,)[^",\r\n]+(?=,|\r?$)', re.MULTILINE)

_CODE = re.compile(r"[A-Za-z]{2}")
_WORD = re.compile(r"[A-Z][a-z]+(?:[ -][A-Za-z]+)*")

_LEVELS = 10
"""Largest number of words among which ``None`` looks like one of them."""

_FREQUENT = 0.05
"""Smallest share of the rows of a frequent class."""

_SHORT = 2
"""Characters of the texts beside which a mark may be a category itself, such as grades and signs."""


def find_marks(columns: Iterable[Sequence[Any]], dates: re.Pattern[str]) -> tuple[str, ...]:
    """Return the marks of missing values in columns of raw values, the most frequent first.

    A mark is a text that is usual for it, in a column whose other values are numbers or dates, or a few such
    marks. A text that may be a category in another column is none. ``dates`` are texts that look like dates.
    """
    counts: Counter[str] = Counter()
    others: list[Counter[str]] = []
    for values in columns:
        if not any(isinstance(value, str) for value in values):
            continue
        texts = Counter(value.strip() for value in values if isinstance(value, str))
        strange = {
            text: count
            for text, count in texts.items()
            if not (text in MISSING or _NUMBER.fullmatch(text) or is_number(text) or dates.fullmatch(text))
        }
        if not strange:
            continue
        present = sum(count for text, count in texts.items() if text not in MISSING)
        valid = present - sum(strange.values())
        if len(strange) <= _FEW and valid >= _SHARE * present and all(map(is_usual, strange)):
            counts.update(strange)
        else:
            others.append(Counter(strange))
    marks = [mark for mark, _ in counts.most_common() if not any(_is_category(mark, o) for o in others)]
    return tuple(marks[:_MOST])


def is_usual(text: str) -> bool:
    """Return whether people write a text in place of a missing value."""
    return bool(_SYMBOLS.fullmatch(text)) or text.lower() in _WORDS


def _is_category(mark: str, texts: Mapping[str, int]) -> bool:
    """Return whether a mark may be a category among the texts of a column, such as ``-`` beside ``+``."""
    if mark not in texts:
        return False
    others = [text for text in texts if text != mark]
    if mark.lower() in _WORDS and len(mark) > _SHORT:
        return True  # such as "unknown": a category that people choose
    return all(len(text) <= _SHORT for text in others)


def count_missing(values: Iterable[Any], not_missing: Collection[str] = ()) -> Counter[str]:
    """Return how often each text that is read as a missing value occurs among raw values."""
    texts = (value.strip() for value in values if isinstance(value, str))
    return Counter(text for text in texts if text and is_missing(text, not_missing))


def quoted_texts(text: str) -> frozenset[str]:
    """Return the texts that are missing values in quotes, in a CSV that does not quote every value."""
    if not _UNQUOTED.search(text):
        return frozenset()
    texts = "|".join(_possible_values())
    return frozenset(re.findall(rf'(?:^|,)"({texts})"(?=,|\r?$)', text, re.MULTILINE))


def _possible_values() -> tuple[str, ...]:
    """Return the texts of missing values that ``[data] not_missing`` can keep."""
    # Intake, which the DAG files import, must not import pydantic.
    from dmls_core.spec.values import MissingOrValue

    return get_args(MissingOrValue)


def find_values(
    missing: Mapping[str, int], others: Mapping[str, int], quoted: Collection[str], *, is_target: bool
) -> list[str]:
    """Return the texts read as ``missing`` that look like values of a column with the ``others``.

    ``NA`` does among codes of two letters, ``None`` among few words such as Mild and Severe, a ``quoted``
    text anywhere, and of a target every text that is a frequent class. Among numbers none does.
    """
    if not others or all(map(is_number, others)):
        return []
    rows = sum(missing.values()) + sum(others.values())
    like = {
        "NA": len(others) > 1 and all(map(_CODE.fullmatch, others)),
        "None": len(others) <= _LEVELS and all(map(_WORD.fullmatch, others)),
    }
    return [
        text
        for text, count in missing.items()
        if text in _possible_values()
        and (text in quoted or like.get(text) or (is_target and count >= _FREQUENT * rows))
    ]


def without_marks(values: Sequence[Any], marks: Sequence[str]) -> Sequence[Any]:
    """Return raw values with None in place of marks."""
    if not any(is_mark(value, marks) for value in values):
        return values
    return [None if is_mark(value, marks) else value for value in values]


def describe_marks(marks: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> str:
    """Return a sentence on the marks in a sample: where they are, and how often; empty if there are none."""
    counts = {name: sum(is_mark(value, marks) for value in values) for name, values in columns.items()}
    named = [f"{name} ({count:,})" for name, count in counts.items() if count]
    if not named:
        return ""
    shown = ", ".join(named[:8]) + (f" and {len(named) - 8} more columns" if len(named) > 8 else "")
    return f"Read as missing values: {', '.join(map(repr, marks))} in {shown}."


def hint_on(texts: Sequence[str]) -> str:
    """Return the remedy for a column of numbers whose other texts are usual marks; empty if they are not."""
    marks = sorted({text.strip() for text in texts})
    if not marks or len(marks) > _FEW or not all(is_usual(mark) and mark not in MISSING for mark in marks):
        return ""
    listed = ", ".join(f'"{mark}"' for mark in marks).replace("\\", "\\\\")
    return f"if this stands for a missing value, set [data] missing = [{listed}], or add it to that list"


def unmarked(column: pl.Expr, marks: Sequence[str]) -> pl.Expr:
    """Return a column of texts with null in place of marks."""
    import polars as pl

    return pl.when(~column.str.strip_chars().is_in(list(marks))).then(column)
