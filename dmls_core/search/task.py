"""The task of a search (data, folds and metric), its search space, and its outcome."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.split.grouping import assign_groups, time_blocks
from dmls_core.data.split.row_roles import RowRoles
from dmls_core.errors import DataError
from dmls_core.models.engines import Engine, Fitted
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Direction, Hyperparameter, ModelDefinition, Range, Scalar, fixed

_POINTS = 5
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

    def contains(self, params: Mapping[str, Scalar]) -> bool:
        """Return whether ``params`` has a legal value of each searched hyperparameter."""
        return all(
            name in params and _legal(hyperparameter, params[name])
            for name, hyperparameter in self.searched.items()
        )


def _legal(hyperparameter: Hyperparameter, value: Scalar) -> bool:
    if not isinstance(hyperparameter, Range):
        return value in hyperparameter.values
    if isinstance(value, str) or not hyperparameter.min <= value <= hyperparameter.max:
        return False
    return (
        hyperparameter.step is None or float((value - hyperparameter.min) / hyperparameter.step).is_integer()
    )


def grid_values(hyperparameter: Hyperparameter) -> tuple[Scalar, ...]:
    """Return the values of one hyperparameter on a grid."""
    if not isinstance(hyperparameter, Range):
        return tuple(hyperparameter.values)
    size = hyperparameter.size
    if size is not None and (hyperparameter.step is not None or size <= _POINTS):
        return tuple(hyperparameter.min + number * (hyperparameter.step or 1) for number in range(size))
    low, high = (
        (math.log(hyperparameter.min), math.log(hyperparameter.max))
        if hyperparameter.log
        else (hyperparameter.min, hyperparameter.max)
    )
    points = [low + (high - low) * number / (_POINTS - 1) for number in range(_POINTS)]
    points = [math.exp(point) for point in points] if hyperparameter.log else points
    inner = [round(point) if hyperparameter.integer else point for point in points[1:-1]]
    return (hyperparameter.min, *inner, hyperparameter.max)


def grid_size(space: Space) -> int:
    """Return the number of points of a grid."""
    return math.prod(len(grid_values(hyperparameter)) for hyperparameter in space.searched.values())


def grid_points(space: Space, seed: int) -> Iterator[dict[str, Scalar]]:
    """Yield every grid point once, in an order shuffled by the seed."""
    axes = {name: grid_values(hyperparameter) for name, hyperparameter in space.searched.items()}
    total = grid_size(space)
    for position in random.Random(seed).sample(range(total), total):  # noqa: S311 - no secret
        point: dict[str, Scalar] = {}
        for name, values in axes.items():
            position, digit = divmod(position, len(values))
            point[name] = values[digit]
        yield point


Score = Callable[[NDArray[Any], NDArray[Any], NDArray[np.float64] | None], float]
"""(truth, prediction, weights) -> score; raises ``DataError`` if the metric is undefined for these rows."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows to fit on and rows to score on, as positions in the task's arrays."""

    train: NDArray[Any]
    test: NDArray[Any]


@dataclass(frozen=True, slots=True)
class SearchTask:
    """The data and the metric that score the trials of one model.

    Attributes:
        features: (n_rows, n_features) float32 on the engine's device: the training rows only.
        target: (n_rows,) on the device, as ``Engine.fit`` takes it.
        truth: the same target in the CPU's memory.
        n_classes: 0 for a regression.
        threads: maximum number of CPU threads.
        weights: (n_rows,) weights of the rows in the CPU's memory; ``None`` if all are equal.
        out_of_bag: whether a tree may be scored on the rows that it has not drawn: not if rows of one group,
            or later rows, are among those that it has drawn.
    """

    model: ModelDefinition
    engine: Engine
    features: Any
    target: Any
    truth: NDArray[Any]
    n_classes: int
    folds: tuple[Fold, ...]
    score: Score
    direction: Direction
    seed: int
    threads: int
    weights: NDArray[np.float64] | None = None
    out_of_bag: bool = True

    def fit(self, params: Mapping[str, Scalar], rows: NDArray[Any] | None = None) -> Fitted:
        """Fit the model on some of the rows, given by position; on all by default."""
        features, target = self.features, self.target
        if rows is not None:
            placed = self.engine.place(rows)
            features, target = features.take(placed, axis=0), target[placed]
        return self.engine.fit(
            self.model,
            params,
            features,
            target,
            n_classes=self.n_classes,
            seed=self.seed,
            threads=self.threads,
            **self.weighing(rows),
        )

    def weighing(self, rows: NDArray[Any] | None = None) -> dict[str, Any]:
        """Return the argument ``weights`` of ``Engine.fit``, if rows have weights."""
        if self.weights is None:
            return {}
        return {"weights": self.engine.place(self.weights if rows is None else self.weights[rows])}

    def score_rows(self, rows: NDArray[Any], prediction: NDArray[Any]) -> float:
        """Return the score of a prediction of some of the rows, given by position."""
        return self.score(self.truth[rows], prediction, None if self.weights is None else self.weights[rows])

    @property
    def sign(self) -> int:
        """1 if a higher score is better, else -1."""
        return 1 if self.direction == "maximize" else -1

    def better(self, one: float, other: float) -> bool:
        """Return whether the score ``one`` beats ``other``."""
        return one > other if self.direction == "maximize" else one < other

    def error(self, score: float) -> float:
        """Return a score as an error, which is 0 for a perfect model."""
        return 1 - score if self.direction == "maximize" else score


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The result of a search: its trials, by number, and the best complete one (of equal ones the first).

    ``params`` are the hyperparameters to refit with: those of the best trial and the fixed ones, or those of
    a model that learns slower. ``fitted`` is the model with these, if the search has grown it on all training
    rows. ``shortfall`` says why there are fewer trials than requested; it is empty if there are as many.
    """

    trials: tuple[Trial, ...]
    best: Trial
    params: dict[str, Scalar]
    fitted: Fitted | None = None
    shortfall: str = ""

    @property
    def complete(self) -> int:
        """Number of complete trials."""
        return sum(trial.state == "complete" for trial in self.trials)

    @property
    def scored(self) -> int:
        """Number of trials with a value, pruned ones included, as ``n_trials`` counts them."""
        return sum(trial.state != "failed" for trial in self.trials)


def best_trial(task: SearchTask, trials: Sequence[Trial]) -> Trial | None:
    """Return the best complete trial, of equal ones the first; ``None`` if no trial is complete."""
    best: Trial | None = None
    for trial in trials:
        if trial.state != "complete" or trial.value is None:
            continue
        if best is None or best.value is None or task.better(trial.value, best.value):
            best = trial
    return best


def make_folds(
    target: NDArray[Any],
    folds: int,
    *,
    n_classes: int,
    seed: int,
    most: int | None = None,
    roles: RowRoles | None = None,
) -> tuple[Fold, ...]:
    """Assign rows to folds: at random and stratified by class, by group, or by time.

    ``target`` holds class codes from 0, or values if ``n_classes`` is 0. There are fewer folds, but at least
    two, if the smallest class has fewer rows, or a fold would have a single row with a value. A class with a
    single row is in the training rows of every fold and scored in none. The same seed gives the same folds.
    Of these, the first ``most`` are returned; of random folds, as many as ``enough_folds`` says. ``roles``
    are those of the rows: groups stay whole; with times, a fold scores a block of rows and trains on all
    earlier ones, and the first fold scores the latest block.

    Raises:
        DataError: there are fewer than two rows to score on.
    """
    if roles is not None and roles.times is not None:
        return _time_folds(roles.times, folds)[:most]
    if roles is not None and roles.groups is not None:
        shares = [1 / folds] * folds
        parts = assign_groups(roles.groups, target, shares, n_classes=n_classes, seed=seed)
        return _folds_of(parts, folds, most)
    generator = np.random.default_rng(seed)
    counts = np.bincount(target).tolist() if n_classes else [len(target)]
    sizes = [size for size in counts if size > 1]
    if not sizes:
        raise DataError("too few rows for a cross-validation: every class has a single row")
    least = 1 if n_classes else 2  # R² of one row is not defined
    count = max(2, min(folds, *(size // least for size in sizes)))
    # Each class continues at the fold where the previous one ended, so that folds differ by one row at most.
    # Small integers: there may be many rows.
    assigned = np.full(len(target), -1, np.int16)
    start = 0
    for code in range(max(1, n_classes)):
        rows = np.flatnonzero(target == code) if n_classes else np.arange(len(target))
        if len(rows) > 1:
            generator.shuffle(rows)
            assigned[rows] = np.resize(np.roll(np.arange(count, dtype=np.int16), -start), len(rows))
            start = (start + len(rows)) % count
    return _folds_of(assigned, count, most or enough_folds(sizes, count))


_ENOUGH_ROWS = 3_333
"""Scored rows from which another fold does not find a better model: one of three folds of 10,000 rows."""

_ENOUGH_OF_A_CLASS = 100
"""Rows of each class that are scored, too: metrics such as the balanced accuracy depend on the rarest."""


def enough_folds(rows: Sequence[int], folds: int) -> int:
    """Return on how many of the ``folds`` a trial is scored; ``rows`` are those of each class, or all.

    docs/explanation/search.md has the figures.
    """
    share = max(_ENOUGH_ROWS / sum(rows), _ENOUGH_OF_A_CLASS / min(rows))
    return min(folds, math.ceil(share * folds))


def _folds_of(assigned: NDArray[np.integer], count: int, most: int | None) -> tuple[Fold, ...]:
    return tuple(
        Fold(*(np.flatnonzero(side).astype(np.int32) for side in (assigned != number, assigned == number)))
        for number in range(count)[:most]
    )


def _time_folds(times: NDArray[np.int64], count: int) -> tuple[Fold, ...]:
    blocks = time_blocks(times, count + 1)
    return tuple(
        Fold(train=np.flatnonzero(blocks < number), test=np.flatnonzero(blocks == number))
        for number in range(count, 0, -1)
    )
