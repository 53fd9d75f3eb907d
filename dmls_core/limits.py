"""Limits that guard against bombs: sane defaults, each of which the environment may set."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import ClassVar, Self

from dmls_core.errors import PlatformError


@dataclass(frozen=True, slots=True)
class Limits:
    """Base of dataclasses whose fields are positive integers.

    Attributes:
        variables: what the environment variables' names begin with; the field's name in capitals follows.
    """

    variables: ClassVar[str]

    @classmethod
    def from_environment(cls) -> Self:
        """Read the limits; what the environment does not set keeps its default.

        Raises:
            PlatformError: a variable is not a positive integer.
        """
        found: dict[str, int] = {}
        for field in fields(cls):
            variable = cls.variables + field.name.upper()
            if text := os.environ.get(variable):
                if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text)):
                    raise PlatformError(f"{variable} must be a positive integer, not {text[:40]!r}")
                found[field.name] = int(text)
        return cls(**found)
