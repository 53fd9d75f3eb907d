"""Specs as JSON for browsers, whose numbers know no difference between 1 and 1.0, which specs do.

A float without a fraction travels as ``{"float": 1}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MARK = "float"


def marked(value: Any) -> Any:
    """Return plain data with every float that JavaScript would take for an integer marked."""
    if isinstance(value, Mapping):
        return {name: marked(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [marked(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        return {MARK: value}
    return value


def unmarked(value: Any) -> Any:
    """Return what ``marked`` was given."""
    if isinstance(value, Mapping):
        number = value.get(MARK)
        if len(value) == 1 and isinstance(number, int | float) and not isinstance(number, bool):
            return float(number)
        return {name: unmarked(part) for name, part in value.items()}
    return [unmarked(part) for part in value] if isinstance(value, list) else value
