"""Collect the issues of a spec, each with its position, and raise them together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.settings import SpecLimits
from dmls_core.spec.positions import Path, Positions
from dmls_core.visible_text import visible

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST = 60


def closest(word: str, names: Iterable[str]) -> str:
    """Return the name most similar to ``word``, or an empty string."""
    # Imported here: only a spec with errors needs it.
    from difflib import get_close_matches

    by_lowercase = {name.lower(): name for name in names}
    # Shortened, because matching is quadratic in the lengths.
    matches = get_close_matches(word[:_LONGEST].lower().replace(" ", "_"), by_lowercase, n=1)
    return by_lowercase[matches[0]] if matches else ""


def dotted(path: Path) -> str:
    """Write a path as TOML would: ``columns.features[2]``, ``tags."cost centre"``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = _cut(part if _BARE_KEY.fullmatch(part) else quoted(part))
        text += f".{key}" if text else key
    return text


def describe(value: object) -> str:
    """Write a value as TOML would, shortened to one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _cut(quoted(value[: _LONGEST + 1]))
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return "a table" if value else "an empty table"
    return _cut(str(value))


def quoted(text: str) -> str:
    """Write a string as TOML would, on one line."""
    # JSON has the same escapes for less characters.
    return visible(json.dumps(text, ensure_ascii=False))


def looks_bare(value: object) -> bool:
    """Return whether a string is a number, true or false in quotes."""
    if not isinstance(value, str):
        return False
    text = value.strip().removeprefix("-")
    return text in ("true", "false") or text.replace(".", "", 1).isdecimal()


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


_NOTHING: Final = object()
_COMPARISONS = 5_000
"""Names compared for suggestions in one report; each takes about 10 microseconds."""


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    message: str
    found: str
    expected: str
    hint: str
    word: str
    names: tuple[str, ...]


class IssueCollector:
    """The issues of a spec so far."""

    def __init__(self, file: str, positions: Positions | None, limits: SpecLimits) -> None:
        self._file = file
        self._positions = positions
        self._most = limits.issues
        # Keyed, since two models can find the same issue in a table that they share.
        self._entries: dict[tuple[Path, str], _Entry] = {}

    def add(
        self,
        path: Path,
        message: str,
        *,
        found: object = _NOTHING,
        expected: str = "",
        hint: str = "",
        word: object = "",
        names: Iterable[str] = (),
    ) -> None:
        """Add an issue at a key, or at its table if the key is missing; ``message`` follows the key.

        ``expected`` is a correct value and ``hint`` a remedy. For an unknown ``word`` the most similar of
        ``names`` is suggested.
        """
        self._entries[path, message] = _Entry(
            path,
            message,
            "" if found is _NOTHING else describe(found),
            expected,
            hint,
            word if isinstance(word, str) else "",
            tuple(names),
        )

    def __len__(self) -> int:
        return len(self._entries)

    def standing(self, *paths: Path) -> Path:
        """Return the first of ``paths`` that the file contains, or the last one."""
        if self._positions is None:
            return paths[-1]
        return next((path for path in paths if path in self._positions), paths[-1])

    def raise_any(self) -> None:
        """Raise the collected issues, if any, as ``SpecError``: in file order, up to the limit."""
        if not self._entries:
            return
        placed = [(self._position(entry), entry) for entry in self._entries.values()]
        placed.sort(key=lambda pair: pair[0])
        issues: list[ValidationIssue] = []
        compared = 0
        for position, entry in placed[: self._most]:
            # Only for those that are shown: matching is expensive.
            compared += len(entry.names)
            issues.append(self._issue(position, entry, suggest=compared <= _COMPARISONS))
        if rest := len(placed) - len(issues):
            issues.append(ValidationIssue(f"and {rest:,} more issues", file=self._file))
        raise SpecError(issues)

    def _position(self, entry: _Entry) -> tuple[int, int]:
        return self._positions.find(entry.path) if self._positions else (0, 0)

    def _issue(self, position: tuple[int, int], entry: _Entry, suggest: bool) -> ValidationIssue:
        hint = entry.hint
        if suggest and entry.word and (name := closest(entry.word, entry.names)):
            hint = f"did you mean {name}?"
        return ValidationIssue(
            entry.message,
            hint,
            file=self._file,
            line=position[0] or None,
            column=position[1] or None,
            key=dotted(entry.path),
            found=entry.found,
            expected=entry.expected,
        )
