"""The search space of one hyperparameter: a range of numbers, or a choice among values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from dmls_core.spec.base import Number, Table, Value
from dmls_core.spec.definitions import Scalar

GRID_POINTS = 5
"""Points that a grid search takes from a range without a step."""


class Range(Table):
    """Numbers from ``min`` to ``max``, both included: integers where both are integers.

    Attributes:
        min: smallest value.
        max: largest value, above ``min``.
        step: distance of the values from ``min`` on; ``None`` is 1 for integers, any for floats.
        log: whether values are drawn evenly over their logarithm.
    """

    min: Number
    max: Number
    step: Number | None = None
    log: bool = False

    @property
    def integer(self) -> bool:
        """Whether it is a range of integers."""
        return isinstance(self.min, int) and isinstance(self.max, int)

    @property
    def size(self) -> int | None:
        """How many values there are; ``None`` where they are not countable."""
        if self.step is None and not self.integer:
            return None
        steps: float = (self.max - self.min) / (self.step or 1)
        # The tolerance makes 0.1..0.5 by 0.1 five values, as a reader would count them.
        return int(steps + 1e-9) + 1 if steps < 2**53 else None

    @property
    def grid_size(self) -> int:
        """How many values a grid search visits: all if it has a step, else ``GRID_POINTS`` at most."""
        if self.size is not None and (self.step is not None or self.size <= GRID_POINTS):
            return self.size
        return GRID_POINTS


class Choice(Table):
    """One of ``values``, in the spec's own order; a single one is a fixed value."""

    values: Annotated[tuple[Value, ...], Field(strict=False, min_length=1)]

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def grid_size(self) -> int:
        """How many values a grid search visits: all."""
        return len(self.values)


Hyperparameter = Range | Choice


def fixed(hyperparameters: Mapping[str, Hyperparameter]) -> dict[str, Scalar]:
    """Return the hyperparameters that have one value only."""
    return {
        name: space.values[0]
        for name, space in hyperparameters.items()
        if isinstance(space, Choice) and len(space.values) == 1
    }


def space_size(hyperparameters: Mapping[str, Hyperparameter]) -> int | None:
    """Return how many different trials there can be; ``None`` where they are not countable."""
    total = 1
    for space in hyperparameters.values():
        size = space.size
        if size is None:
            return None
        total *= size
    return total
