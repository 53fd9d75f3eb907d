"""Values of a hyperparameter as places on an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmls_core.evaluate.report.parts import brief
from dmls_core.spec.definitions import Scalar

FEW = 6
"""Values up to which each has a tick."""

MOST = 12
"""Ticks of words at most."""


def _place(value: Scalar) -> tuple[int, float, str]:
    """Say where a value stands among others of all kinds: numbers by their size, then words."""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def short(value: object) -> str:
    """Write a setting for people."""
    return brief(value) if isinstance(value, float) else str(value)


class Scale:
    """Where a hyperparameter's values stand between 0 and 1.

    Args:
        values: those that are shown; numbers if all are numbers.
        log: whether numbers stand by their logarithm, where all are above 0.
    """

    def __init__(self, values: Sequence[Scalar], *, log: bool) -> None:
        numbers = [
            value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        self.numbers = sorted(set(numbers)) if len(numbers) == len(values) else []
        self.words = [] if self.numbers else list(dict.fromkeys(map(str, sorted(values, key=_place))))
        self.log = log and bool(self.numbers) and self.numbers[0] > 0

    def __call__(self, value: Scalar) -> float:
        """Return the place of a value."""
        if self.words:
            return round(self.words.index(str(value)) / max(1, len(self.words) - 1), 4)
        at, low, high = (
            math.log(float(number)) if self.log else float(number)
            for number in (value, self.numbers[0], self.numbers[-1])
        )
        return round((at - low) / (high - low), 4) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and their texts: all of a few, the ends and the middle of many numbers."""
        if self.words:
            return [(self(word), word) for word in self.words[:MOST]]
        shown = self.numbers if len(self.numbers) <= FEW else self.ends()
        return [(self(number), short(number)) for number in shown]

    def ends(self) -> list[float]:
        """Return a few numbers: all of three, or the ends and the middle."""
        if len(self.numbers) <= 3:
            return list(self.numbers)
        low, high = self.numbers[0], self.numbers[-1]
        middle = math.sqrt(low * high) if self.log else (low + high) / 2
        return [low, round(middle) if isinstance(low, int) else float(f"{middle:.3g}"), high]
