"""Partition patterns: ``data/{date}.csv`` matches one file per day.

The fields have a fixed number of digits:
``{date}`` (2026-01-31), ``{year}``, ``{month}``, ``{day}``, ``{hour}`` (00 to 23). ``*`` matches any
text within a folder's or file's name, ``?`` one character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

Unit = Literal["hour", "day", "month", "year"]

FIELDS = ("date", "year", "month", "day", "hour")

GRIDS: dict[Unit, str] = {
    "hour": "0 * * * *",
    "day": "0 0 * * *",
    "month": "0 0 1 * *",
    "year": "0 0 1 1 *",
}
"""Unit of time -> cron expression of its starts."""

_MAX_STARS = 2
"""More could make matching extremely slow."""

_TOKEN = re.compile(r"\{(\w*)\}|\*|\?|[{}]|[^{}*?]+")
_DIGITS = {"date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "year": "[0-9]{4}"}
_TWO_DIGITS = "[0-9]{2}"


@dataclass(frozen=True, slots=True)
class PartitionPattern:
    """A pattern of names with at least one field.

    ``unit``, the period of a file, is the finest field; names start with ``prefix`` and match ``expression``.
    """

    text: str
    unit: Unit
    prefix: str
    expression: re.Pattern[str]

    def period(self, name: str, zone: ZoneInfo) -> tuple[datetime, datetime] | None:
        """Return the interval of a file's data (UTC, end exclusive), or ``None`` for other files.

        ``name`` is the path below the job's folder, ``zone`` the time zone of the dates in it.
        """
        match = self.expression.fullmatch(name)
        if match is None:
            return None
        fields = {key: value for key, value in match.groupdict().items() if value is not None}
        if "date" in fields:
            year, month, day = fields["date"].split("-")
            parts = {"year": year, "month": month, "day": day}
            if any(fields.get(key, value) != value for key, value in parts.items()):
                return None
            fields |= parts
        year, month, day, hour = (
            int(fields.get(key, least)) for key, least in (("year", 1), ("month", 1), ("day", 1), ("hour", 0))
        )
        try:
            start = datetime(year, month, day, hour, tzinfo=zone)
            end = _following(start, self.unit)
        except (ValueError, OverflowError):  # the 31st of February, the year 0
            return None
        return start.astimezone(UTC), end.astimezone(UTC)

    def example(self, start: datetime) -> str:
        """Return the name of the partition that starts at ``start``, for messages."""
        values = {
            "date": f"{start:%Y-%m-%d}",
            "year": f"{start:%Y}",
            "month": f"{start:%m}",
            "day": f"{start:%d}",
            "hour": f"{start:%H}",
        }
        return "".join(values.get(match[1] or "", match[0]) for match in _TOKEN.finditer(self.text))


def _following(start: datetime, unit: Unit) -> datetime:
    """Return the start of the next unit, in the calendar of the time zone."""
    match unit:
        case "hour":
            return start.astimezone(UTC) + timedelta(hours=1)
        case "day":
            return start + timedelta(days=1)
        case "month":
            return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        case "year":
            return start.replace(year=start.year + 1)


def has_fields(path: str) -> bool:
    """Return whether a path is a partition pattern."""
    return "{" in path or "}" in path


@lru_cache(maxsize=1024)
def parse_pattern(path: str) -> PartitionPattern:
    """Return the parsed pattern; the message of a ``ValueError`` follows the key."""
    tokens = list(_TOKEN.finditer(path))
    used = {token[1] for token in tokens if token[1] is not None}
    if any(token[0] in ("{", "}") for token in tokens):
        raise ValueError("has a brace without its other half")
    if unknown := sorted(used - set(FIELDS)):
        raise ValueError(f"has the unknown field {{{unknown[0]}}}")
    if not used:
        raise ValueError("has no field")
    fields = used | ({"year", "month", "day"} if "date" in used else set())
    for finer, coarser in (("hour", "day"), ("day", "month"), ("month", "year")):
        if finer in fields and coarser not in fields:
            raise ValueError(f"has {{{finer}}} without {{{coarser}}}")
    if path.count("*") > _MAX_STARS:
        raise ValueError(f"has more than {_MAX_STARS} *")
    unit: Unit = next(unit for unit in get_args(Unit) if unit in fields)
    first = next(token.start() for token in tokens if token[0] in ("*", "?") or token[1])
    return PartitionPattern(path, unit, path[:first], re.compile(_expression(tokens), re.ASCII))


def parse_names(path: str) -> tuple[str, re.Pattern[str]]:
    """Return the common start and regular expression of a path's names.

    Raises:
        ValueError: the path is wrong; the message follows the key.
    """
    if has_fields(path):
        pattern = parse_pattern(path)
        return pattern.prefix, pattern.expression
    if path.count("*") > _MAX_STARS:
        raise ValueError(f"has more than {_MAX_STARS} *")
    tokens = list(_TOKEN.finditer(path))
    first = next((token.start() for token in tokens if token[0] in ("*", "?")), len(path))
    return path[:first], re.compile(_expression(tokens), re.ASCII)


def a_name(path: str) -> str:
    """Return an example of a name that a path matches."""
    shown = parse_pattern(path).example(datetime(2026, 1, 31, tzinfo=UTC)) if has_fields(path) else path
    return shown.replace("*", "x").replace("?", "x")


def _expression(tokens: list[re.Match[str]]) -> str:
    parts: list[str] = []
    captured: set[str] = set()
    for token in tokens:
        name = token[1]
        if name and name in captured:
            parts.append(f"(?P={name})")
        elif name:
            captured.add(name)
            parts.append(f"(?P<{name}>{_DIGITS.get(name, _TWO_DIGITS)})")
        elif token[0] == "*":
            parts.append("[^/]*")
        elif token[0] == "?":
            parts.append("[^/]")
        else:
            parts.append(re.escape(token[0]))
    return "".join(parts)
