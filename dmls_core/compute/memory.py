"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from dmls_core.errors import UserError, ValidationIssue

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def parse_memory(text: str) -> int:
    """Return the number of bytes that ``text`` means: ``"4g"`` and ``"4 GiB"`` are 4 x 2**30.

    Raises:
        UserError: ``text`` is no amount of memory.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UserError(
            ValidationIssue(
                "not an amount of memory", key="memory", found=text, hint='write it like "4g" or "512m"'
            )
        )
    return int(float(match[1]) * UNITS[match[2].lower()])
