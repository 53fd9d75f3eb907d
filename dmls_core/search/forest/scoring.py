"""The rows that forests grow on, and the rows that they are scored on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.models.engines.base import Array
from dmls_core.search.forest.bins import Bins
from dmls_core.search.space import Space
from dmls_core.search.task import SearchTask
from dmls_core.spec.definitions import Scalar
from dmls_core.spec.hyperparameters import Choice

SUMS_BYTES = 128 * 2**20
"""Most memory for the sums of one forest's answers: fewer rows are scored where it would be more."""

MIN_SCORED = 2_000
"""So many rows are scored however much memory it takes."""

MAX_SCORED = 50_000
"""More rows would tell settings apart no better than the rows to come will."""

EVERY_FOLD_ROWS = 5_000
"""Up to so many rows, forests without out-of-bag rows are scored on every fold; with more, on the first."""

MAX_DRAWS = 1.5
"""How often a tree may draw a row, in the mean, where rows are scored out of bag: a fifth of the trees has
not seen it then."""


@dataclass(frozen=True, slots=True)
class ScoringSplit:
    """One matrix to grow a forest on, and rows to score it on: on the engine's device, but for ``truth``.

    Attributes:
        features: (n_rows, n_features) float32 to grow on.
        target: (n_rows,) of it.
        probe: (n_probed, n_features): a matrix with the rows to score.
        scored: (n_scored,) their positions in it.
        truth: (n_scored,) of them.
        out_of_bag: whether ``probe`` is ``features``, and trees answer for what they have not seen.
    """

    features: Array
    target: Array
    probe: Array
    scored: NDArray[np.int64]
    truth: NDArray[Any]
    out_of_bag: bool


@dataclass(frozen=True, slots=True)
class ScoringData:
    """The splits of a task: a forest grows on each, and its score is the mean.

    Attributes:
        splits: one if out of bag; else one per fold that is scored.
        bins: how features became codes; ``None`` where they stayed as they are.
    """

    splits: tuple[ScoringSplit, ...]
    bins: Bins | None

    @property
    def out_of_bag(self) -> bool:
        """Whether forests are scored by rows that each tree has not seen."""
        return self.splits[0].out_of_bag


def prepare_scoring(task: SearchTask, space: Space, limits: int) -> ScoringData:
    """Prepare the rows of a task.

    Args:
        task: the rows.
        space: scores are taken out of bag where every forest of it draws its rows.
        limits: how many ways each tree is cut.
    """
    bins = None
    features = task.features
    on_cpu = task.engine.device == "cpu"
    # Extra trees draw thresholds between values: drawn between codes they would be other trees. cuML has bins
    # of its own.
    if on_cpu and task.model.family == "random-forest":
        bins = Bins.of(features, seed=task.seed)
        features = bins.encode(features)
    limit = max(MIN_SCORED, SUMS_BYTES // (8 * limits * max(1, task.n_classes)))
    limit = min(limit, MAX_SCORED)
    generator = np.random.default_rng(task.seed)

    def few(rows: NDArray[Any]) -> NDArray[Any]:
        if len(rows) <= limit:
            return rows
        return np.sort(generator.choice(rows, limit, replace=False))

    draws = task.engine.effective(task.model, space.fixed)["bootstrap"]
    draws = draws and "bootstrap" not in space.searched and _most_drawn(task, space) <= MAX_DRAWS
    # cuML does not tell which rows a tree has drawn.
    if on_cpu and draws:
        rows = few(np.arange(len(task.truth)))
        return ScoringData(
            (ScoringSplit(features, task.target, features, rows, task.truth[rows], True),), bins
        )
    folds = task.folds if len(task.truth) <= EVERY_FOLD_ROWS else task.folds[:1]
    splits = []
    for fold in folds:
        rows = few(fold.test)
        train, probed = task.engine.place(fold.train), task.engine.place(rows)
        matrix, target, probe = features[train], task.target[train], features[probed]
        splits.append(ScoringSplit(matrix, target, probe, np.arange(len(rows)), task.truth[rows], False))
    return ScoringData(tuple(splits), bins)


def _most_drawn(task: SearchTask, space: Space) -> float:
    """Return how often a tree of a space draws a row of the rarest class at most, in the mean.

    With balanced classes scikit-learn draws a row the more often the fewer its class has: of one with a
    twentieth of the rows each ten times, and no tree would be left to answer for them. ``max_samples`` may
    ask for more rows than there are.
    """
    rows = len(task.truth)
    asked = [value for value in _values(space, "max_samples") if isinstance(value, int)]
    drawn = max([1.0, *(value / rows for value in asked)])
    if "balanced" not in _values(space, "class_weight"):
        return drawn
    _, counts = np.unique(task.truth, return_counts=True)
    return float(drawn * rows / (len(counts) * counts.min()))


def _values(space: Space, name: str) -> tuple[Scalar, ...]:
    """Return what a space asks for of a hyperparameter: its value or values, or the ends of its range."""
    wanted = space.searched.get(name)
    if wanted is None:
        return (space.fixed[name],) if name in space.fixed else ()
    return tuple(wanted.values) if isinstance(wanted, Choice) else (wanted.min, wanted.max)


class ForestScorer(ABC):
    """One forest on one split, however it grows.

    Args:
        task: what is searched.
        split: the rows.
        target: those that it grows on, in the CPU's memory.

    Attributes:
        codes: the classes among them, a fold may lack some; ``None`` for a regression.
    """

    def __init__(self, task: SearchTask, split: ScoringSplit, target: NDArray[Any]) -> None:
        self._task = task
        self._split = split
        self.codes = np.unique(target) if task.n_classes else None

    @property
    def outputs(self) -> int:
        """How many numbers a tree answers."""
        return 1 if self.codes is None else len(self.codes)

    @property
    @abstractmethod
    def trees(self) -> int:
        """How many trees it has."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """How much memory it takes, about."""

    @abstractmethod
    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees, or stay as it is if there are as many.

        Raises:
            DataError: the library refuses the hyperparameters.
        """

    @abstractmethod
    def slots(self) -> list[int]:
        """Return of each cut the first one that has done the same to every tree so far."""

    @abstractmethod
    def has_votes(self) -> NDArray[np.bool_]:
        """Say of each scored row whether any tree has answered it."""

    @abstractmethod
    def voting_share(self) -> float:
        """Return the share of the trees that answer a scored row, in the mean."""

    @abstractmethod
    def mean(self, cut: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean answer of the trees under a cut: (n_rows, outputs).

        Args:
            cut: position in the parts's ``limits``.
            rows: which of the scored rows; some tree has answered each.
        """

    def prediction(self, cut: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return what the forest predicts under a cut, as ``Fitted.predict`` does; see ``mean``."""
        mean = self.mean(cut, rows)
        if self.codes is None:
            return mean[:, 0]
        if len(self.codes) == self._task.n_classes:
            return mean
        full = np.zeros((len(mean), self._task.n_classes))
        full[:, self.codes] = mean
        return full

    def scores(self) -> tuple[float, ...]:
        """Return the score under every cut.

        Raises:
            DataError: the metric is not defined for the rows.
        """
        rows = np.flatnonzero(self.has_votes())
        truth = self._split.truth[rows]
        slots = self.slots()
        found = {cut: self._task.score(truth, self.prediction(cut, rows)) for cut in set(slots)}
        return tuple(found[cut] for cut in slots)

    def scores_without(self, cut: int, groups: NDArray[Any], count: int) -> NDArray[np.float64]:
        """Return the score under a cut without the rows of each group in turn: (count,).

        Args:
            cut: position in the parts's ``limits``.
            groups: (n_scored,) the group of each row, from 0.
            count: how many groups there are; few rows leave some without any.
        """
        rows = np.flatnonzero(self.has_votes())
        truth, prediction, group = self._split.truth[rows], self.prediction(cut, rows), groups[rows]
        found = []
        for number in range(count):
            kept = group != number
            try:
                found.append(self._task.score(truth[kept], prediction[kept]))
            except DataError:
                # The group holds all rows of a class, or the only row: it counts as if it told nothing.
                found.append(self._task.score(truth, prediction))
        return np.asarray(found)
