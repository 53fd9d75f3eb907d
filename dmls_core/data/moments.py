"""Read dates and times: seconds from their texts, and back.

This module needs only the standard library and NumPy: copies of it are beside those of ``encoder``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from typing import Literal

import numpy as np

_SHOWN = 60

DateOrder = Literal["year-first", "day-first", "month-first"]
"""Order of the parts of a date that does not begin with the year."""

_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d{1,9})?)?(?: ?(?P<half>[AP])M)?"
_YEAR = r"\d{4}|\d{2}"
_TIME = re.compile(_CLOCK, re.ASCII | re.IGNORECASE)
_MOMENT = re.compile(
    r"(?:(?P<y1>\d{4})(?P<s1>[-/.])(?P<m1>\d{1,2})(?P=s1)(?P<d1>\d{1,2})"
    rf"|(?P<a>\d{{1,2}})(?P<s2>[-/.])(?P<b>\d{{1,2}})(?P=s2)(?P<y2>{_YEAR})"
    r"|(?P<y3>\d{4})(?P<m3>\d{2})(?P<d3>\d{2})"
    rf"|(?P<d4>\d{{1,2}})[-. ]{{1,2}}(?P<m4>[A-Z]{{3,9}})[-., ]{{1,2}}(?P<y4>{_YEAR})"
    r"|(?P<m5>[A-Z]{3,9})\.? (?P<d5>\d{1,2}),? (?P<y5>\d{4}))"
    rf"(?:(?:T| +){_CLOCK}(?: ?(?:Z|UTC|(?P<sign>[+-])(?P<hours>\d{{2}}):?(?P<minutes>\d{{2}})))?)?",
    re.ASCII | re.IGNORECASE,
)
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_DAY, _EPOCH = 86_400, date(1970, 1, 1).toordinal()
_CENTURY = 69
"""Years of two digits from here on are those of the 20th century, as for POSIX."""


def moment(value: object, order: DateOrder) -> int:
    """Return the seconds from 1970-01-01 to a date or time.

    ``value`` is a text, or a date or time of Python, NumPy or pandas. Raise ``ValueError`` for anything else.
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[s]")
    match = _MOMENT.fullmatch(str(value).strip())
    with suppress(ValueError):  # no such day or time
        if match is not None:
            return _seconds(match.groupdict(), order)
    raise ValueError(f"{repr(value)[:_SHOWN]} is not a {order} date, nor one such as 2026-01-31")


def time_of_day(value: object) -> int:
    """Return the seconds from midnight to a time.

    ``value`` is a text, or a time of Python. Raise ``ValueError`` for anything else.
    """
    match = _TIME.fullmatch(str(value).strip())
    with suppress(ValueError):
        if match is not None:
            return _clock(match.groupdict())
    raise ValueError(f"{repr(value)[:_SHOWN]} is not a time such as 14:05")


def _seconds(parts: Mapping[str, str | None], order: DateOrder) -> int:
    offset = int(f"{parts['sign'] or ''}{parts['hours'] or 0}") * 60
    offset += int(f"{parts['sign'] or ''}{parts['minutes'] or 0}")
    seconds = _DAY * _ordinal(parts, order) + _clock(parts) - 60 * offset
    date.fromordinal(seconds // _DAY)  # in another time zone, it may be beyond the calendar
    return seconds - _DAY * _EPOCH


def _ordinal(parts: Mapping[str, str | None], order: DateOrder) -> int:
    """Return the day of a date, counted from the year 1; raise ``ValueError`` if there is none."""
    first, second = parts["a"], parts["b"]
    if order == "day-first":
        first, second = second, first
    elif order == "year-first" and first:
        raise ValueError
    year = next(filter(None, (parts[key] for key in ("y1", "y2", "y3", "y4", "y5"))))
    month = next(filter(None, (parts["m1"], first, parts["m3"], parts["m4"], parts["m5"])))
    day = next(filter(None, (parts["d1"], second, parts["d3"], parts["d4"], parts["d5"])))
    century = 0 if len(year) == 4 else 1900 if int(year) >= _CENTURY else 2000
    return date(int(year) + century, _month(month.lower()), int(day)).toordinal()


def _month(text: str) -> int:
    if text.isdecimal():
        return int(text)
    names = {name for name in _MONTHS if text in (name, name[:3]) or (text, name) == ("sept", "september")}
    if not names:
        raise ValueError
    return 1 + _MONTHS.index(names.pop())


def _clock(parts: Mapping[str, str | None]) -> int:
    hour, minute, second = (int(parts[key] or 0) for key in ("hour", "minute", "second"))
    if half := parts["half"]:
        hour = hour % 12 + 12 * (half in "Pp") if 1 <= hour <= 12 else 24
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError
    return 3600 * hour + 60 * minute + second


def day_of(days: float) -> str:
    """Return the date that is some days after 1970-01-01."""
    return str(np.datetime64(int(days), "D"))


def hour_of(hours: float) -> str:
    """Return the time of the day that is some hours after midnight."""
    return str(np.datetime64(round(3600 * hours), "s")).partition("T")[2]
