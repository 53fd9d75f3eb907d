"""Result of one check of ``dmls doctor``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check: ``missing`` is optional or not needed here, ``broken`` needs a fix."""

    name: str
    state: Literal["ok", "missing", "broken"]
    message: str
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the check as JSON."""
        return asdict(self)
