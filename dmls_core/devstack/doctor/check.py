"""One finding of ``dmls doctor``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at and found.

    Attributes:
        name: what was looked at.
        state: ``ok``; ``missing``: DMLS does without, or it is not needed here; ``broken``: fix it.
        message: what was found.
        hint: how to fix it.
    """

    name: str
    state: Literal["ok", "missing", "broken"]
    message: str
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the check as JSON."""
        return asdict(self)
