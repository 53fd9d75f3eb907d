"""Estimate the cost of a large fit from small timed ones."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from dmls_core.hardware import available_cpus
from dmls_core.models.engines import Engine
from dmls_core.models.engines.base import TREELITE
from dmls_core.search import Space
from dmls_core.spec import ModelDefinition
from dmls_core.spec.definitions import Scalar
from dmls_core.spec.hyperparameters import Choice, Hyperparameter
from dmls_core.training.prepare import Prepared

SIZE = "n_estimators"
"""The number of trees; a model without it is one fit."""

ROWS = (1_000, 4_000)
"""Rows of the two samples."""

TREES = 10
GROWTH = (0.8, 1.3)
"""Bounds of the exponent by which the time of a fit grows with its rows: small samples measure it poorly."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds to fit the largest model of a space on all training rows, and bytes of its checkpoint."""

    seconds: float
    model_bytes: int


@dataclass(frozen=True, slots=True)
class _Sample:
    rows: int
    seconds: float
    """Per tree."""
    bytes: float
    """Per tree."""


def estimate_largest_fit(
    engine: Engine, model: ModelDefinition, space: Space, data: Prepared, seed: int
) -> Cost:
    """Estimate the fit of the space's largest model, with all other hyperparameters in the middle."""
    rows = len(data.train)
    sizes = [size for size in ROWS if size < rows] or [rows]
    samples = [_sample(engine, model, space, data, size, seed) for size in sizes]
    small, large = samples[0], samples[-1]
    growth = 1.0
    if len(samples) > 1:
        growth = math.log(large.seconds / small.seconds) / math.log(large.rows / small.rows)
        growth = min(max(growth, GROWTH[0]), GROWTH[1])
    trees = max(sizes_of(model, space))
    seconds = trees * large.seconds * (rows / large.rows) ** growth
    return Cost(seconds, int(trees * large.bytes * rows / large.rows))


def sizes_of(model: ModelDefinition, space: Space) -> tuple[int, ...]:
    """Return the numbers of trees of a space: both ends of a range, or all values of a choice."""
    if SIZE not in model.hyperparameters:
        return (1,)
    wanted = space.searched.get(SIZE)
    if wanted is None:
        return (int(space.fixed.get(SIZE, model.hyperparameters[SIZE].default)),)
    values = wanted.values if isinstance(wanted, Choice) else (wanted.min, wanted.max)
    return tuple(int(value) for value in values)


def _sample(
    engine: Engine, model: ModelDefinition, space: Space, data: Prepared, rows: int, seed: int
) -> _Sample:
    """Time fits of one tree and of more trees on the first rows: the difference has no fixed costs."""
    params = {**space.fixed, **{name: _middle(wanted) for name, wanted in space.searched.items()}}
    features, target = engine.place(data.train[:rows]), engine.place(data.train_target[:rows])
    times = []
    for trees in (1, 1 + TREES):
        begun = time.monotonic()
        fitted = engine.fit(
            model,
            {**params, SIZE: trees},
            features,
            target,
            n_classes=data.n_classes,
            seed=seed,
            threads=available_cpus(),
        )
        times.append(time.monotonic() - begun)
    size = len(fitted.to_treelite().serialize_bytes()) if engine.export_format == TREELITE else 0
    if SIZE not in model.hyperparameters:
        return _Sample(rows, times[1], size)
    return _Sample(rows, max(times[1] - times[0], 1e-5) / TREES, size / (1 + TREES))


def _middle(wanted: Hyperparameter) -> Scalar:
    if isinstance(wanted, Choice):
        value: Scalar = wanted.values[len(wanted.values) // 2]
        return value
    low, high = float(wanted.min), float(wanted.max)
    middle = math.sqrt(low * high) if wanted.log else (low + high) / 2
    return round(middle) if wanted.integer else middle
