"""Numbers and texts as pages show them."""

from __future__ import annotations

import math

NAME_LENGTH = 60
"""Characters of a name on a page at most."""

SETTING_LENGTH = 24
"""Characters of a hyperparameter's value at most."""

CELL_LENGTH = 2_000


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
    """Return a float with four significant digits; 1.0 stays distinct from the integer 1."""
    text = f"{value:,.4g}"
    return text if "e" in text or "." in text or not math.isfinite(value) else f"{text}.0"


def setting(value: object) -> object:
    """Return a hyperparameter's value as a table shows it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shorten("none" if value is None else value, SETTING_LENGTH)
    return Formatted(value if isinstance(value, int) else brief(value))


def shorten(text: object, length: int = NAME_LENGTH) -> str:
    """Cut a text in the middle: names with the same beginning often differ at the end."""
    shown = str(text)
    if len(shown) <= length:
        return shown
    end = (length - 1) // 2
    return f"{shown[: length - 1 - end]}…{shown[-end:]}"


def sentence(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def is_number(value: object) -> bool:
    """Return whether a table aligns the value to the right."""
    return isinstance(value, int | float | Formatted) and not isinstance(value, bool)


def cell(value: object) -> str:
    """Return a table cell's text; ``None`` is an empty cell."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return shorten(value, CELL_LENGTH)
