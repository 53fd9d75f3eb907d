"""What a growing forest answers under every cut, as scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.search.forest.scoring import ScoringSplit
from dmls_core.search.task import SearchTask


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
    def answered(self) -> NDArray[np.bool_]:
        """Say of each scored row whether any tree has answered it."""

    @abstractmethod
    def share(self) -> float:
        """Return the share of the trees that answer a scored row, in the mean."""

    @abstractmethod
    def mean(self, cut: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean answer of the trees under a cut: (n_rows, outputs).

        Args:
            cut: position in the layout's ``cuts``.
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
        rows = np.flatnonzero(self.answered())
        truth = self._split.truth[rows]
        slots = self.slots()
        found = {cut: self._task.score(truth, self.prediction(cut, rows)) for cut in set(slots)}
        return tuple(found[cut] for cut in slots)

    def scores_without(self, cut: int, groups: NDArray[Any], count: int) -> NDArray[np.float64]:
        """Return the score under a cut without the rows of each group in turn: (count,).

        Args:
            cut: position in the layout's ``cuts``.
            groups: (n_scored,) the group of each row, from 0.
            count: how many groups there are; few rows leave some without any.
        """
        rows = np.flatnonzero(self.answered())
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
