"""The search space of one hyperparameter: a range of numbers, or a choice among values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from dmls_core.spec.definitions import Scalar
from dmls_core.spec.tables import Number, Table, Value

GRID_POINTS = 5
"""Number of points of a range without a step in a grid search."""


class Range(Table):
    """Numbers from ``min`` to ``max``, both included; integers if both are integers.

    Attributes:
        min: smallest value.
        max: largest value, above ``min``.
        step: between values, from ``min``; ``None`` is 1 for integers and continuous for floats.
        log: whether values are sampled on a log scale.
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
        """Number of values; ``None`` for a continuous range."""
        if self.step is None and not self.integer:
            return None
        steps: float = (self.max - self.min) / (self.step or 1)
        # The tolerance makes 0.1 to 0.5 in steps of 0.1 five values.
        return int(steps + 1e-9) + 1 if steps < 2**53 else None

    @property
    def grid_size(self) -> int:
        """Number of values in a grid search: all with a step, else at most ``GRID_POINTS``."""
        if self.size is not None and (self.step is not None or self.size <= GRID_POINTS):
            return self.size
        return GRID_POINTS


class Choice(Table):
    """One of ``values``, in the order of the spec; a single one is a fixed value."""

    values: Annotated[tuple[Value, ...], Field(strict=False, min_length=1)]

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def grid_size(self) -> int:
        """Number of values in a grid search: all."""
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
    """Return the number of different trials; ``None`` if a range is continuous."""
    total = 1
    for space in hyperparameters.values():
        size = space.size
        if size is None:
            return None
        total *= size
    return total
