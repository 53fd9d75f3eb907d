"""Validate cron expressions field by field. Airflow evaluates them."""

from __future__ import annotations

import re

_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_Field = tuple[str, int, int, tuple[str, ...]]
_FIELDS: tuple[_Field, ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_LONGEST = {month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in range(1, 13)}
"""Month -> its largest number of days."""

_TERM = re.compile(r"(?:\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?")


def cron_issue(cron: str) -> str:
    """Return the error in a cron expression, or an empty string."""
    if cron.startswith("@"):
        return "" if cron in _PRESETS else f"is not one of {', '.join(_PRESETS)}"
    fields = cron.split()
    if len(fields) != len(_FIELDS):
        return f"has {len(fields)} fields instead of five"
    for text, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        for term in text.lower().split(","):
            if not _fits(term, low, high, words):
                return f"has {text[:40]!r} as its {name}, not a value from {low} to {high}"
    _, _, days, months, weekdays = fields
    # With a weekday, either of the two matches.
    if weekdays == "*" and min(_values(days, _FIELDS[2])) > max(
        _LONGEST[month] for month in _values(months, _FIELDS[3])
    ):
        return "has a day of the month that none of its months has"
    return ""


def _fits(term: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    match = _TERM.fullmatch(term)
    if match is None or match[3] == "0" or match[3] == "00":
        return False
    numbers = [_number(part, words, low) for part in (match[1], match[2]) if part]
    if any(number is None or not low <= number <= high for number in numbers):
        return False
    return len(numbers) < 2 or (numbers[0] or 0) <= (numbers[1] or 0)


def _values(text: str, field: _Field) -> set[int]:
    _, low, high, words = field
    values: set[int] = set()
    for term in text.lower().split(","):
        if match := _TERM.fullmatch(term):
            first, last, step = match.groups()
            start = low if first is None else _number(first, words, low) or low
            # 5/7 is from 5 on.
            end = _number(last, words, low) if last else start if first and not step else high
            values.update(range(start, (end or high) + 1, int(step or 1)))
    return values


def _number(part: str, words: tuple[str, ...], low: int) -> int | None:
    if part.isdigit():
        return int(part)
    return words.index(part) + low if part in words else None
