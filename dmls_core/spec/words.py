"""Turns paths, values and near misses into the words of an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from dmls_core.spec.positions import Path

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST = 60


def closest(word: str, names: Iterable[str]) -> str:
    """Return the name most like ``word``, or nothing where none is."""
    # Imported here: only a spec with errors needs it.
    from difflib import get_close_matches

    known = {name.lower(): name for name in names}
    # Cut, because matching takes time quadratic in the lengths.
    matches = get_close_matches(word[:_LONGEST].lower().replace(" ", "_"), known, n=1)
    return known[matches[0]] if matches else ""


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
    written = json.dumps(text, ensure_ascii=False)
    # JSON lets through what a terminal would act on, or not show.
    return "".join(
        c if c.isprintable() else json.dumps(c)[1:-1] if ord(c) > 0x7F else f"\\u{ord(c):04x}"
        for c in written
    )


def looks_bare(value: object) -> bool:
    """Whether a string is a number, true or false that was put in quotes."""
    if not isinstance(value, str):
        return False
    text = value.strip().removeprefix("-")
    return text in ("true", "false") or text.replace(".", "", 1).isdecimal()


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
