"""The search space of one model on one engine, and its grid."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dmls_core.spec.definitions import Scalar
from dmls_core.spec.hyperparameters import Hyperparameter, Range, fixed

POINTS = 5
"""Grid points of a range without a step: both ends, and points spread evenly between them."""


@dataclass(frozen=True, slots=True)
class Space:
    """Searched and fixed hyperparameters, by the spec's names."""

    searched: dict[str, Hyperparameter]
    fixed: dict[str, Scalar]

    @classmethod
    def of(cls, hyperparameters: Mapping[str, Hyperparameter]) -> Space:
        """Separate the hyperparameters with a single value from those that are searched."""
        single = fixed(hyperparameters)
        return cls({k: v for k, v in hyperparameters.items() if k not in single}, single)


def grid_values(wanted: Hyperparameter) -> tuple[Scalar, ...]:
    """Return the values of one hyperparameter on a grid."""
    if not isinstance(wanted, Range):
        return tuple(wanted.values)
    size = wanted.size
    if size is not None and (wanted.step is not None or size <= POINTS):
        return tuple(wanted.min + number * (wanted.step or 1) for number in range(size))
    low, high = (math.log(wanted.min), math.log(wanted.max)) if wanted.log else (wanted.min, wanted.max)
    points = [low + (high - low) * number / (POINTS - 1) for number in range(POINTS)]
    points = [math.exp(point) for point in points] if wanted.log else points
    inner = [round(point) if wanted.integer else point for point in points[1:-1]]
    return (wanted.min, *inner, wanted.max)


def grid_points(space: Space, seed: int) -> Iterator[dict[str, Scalar]]:
    """Yield every grid point once, in an order shuffled by the seed."""
    axes = {name: grid_values(wanted) for name, wanted in space.searched.items()}
    total = math.prod(len(values) for values in axes.values())
    for position in random.Random(seed).sample(range(total), total):  # noqa: S311 - no secret
        point: dict[str, Scalar] = {}
        for name, values in axes.items():
            position, digit = divmod(position, len(values))
            point[name] = values[digit]
        yield point
