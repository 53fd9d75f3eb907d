"""One structural configuration on its way through the rungs."""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.models.engines import GrowingForestEngine
from dmls_core.models.engines.base import useful_threads
from dmls_core.search.forest.block_forest import BlockForest
from dmls_core.search.forest.halving import converged, foretold, standard_error
from dmls_core.search.forest.incremental_forest import IncrementalForest
from dmls_core.search.forest.pick import pick_cut
from dmls_core.search.forest.scoring import ScoringData
from dmls_core.search.forest.space import TREES, PartitionedSpace
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import Surface, Trial
from dmls_core.spec.definitions import Scalar

GROUPS = 16
"""Groups of rows that the certainty of a difference is judged by."""


class Candidate:
    """A configuration and the forests that grow for it."""

    def __init__(
        self,
        task: SearchTask,
        layout: PartitionedSpace,
        field: ScoringData,
        number: int,
        params: dict[str, Scalar],
    ) -> None:
        self.number = number
        self.params = params
        self.seconds = 0.0
        self.intermediate_values: list[float] = []
        self._task = task
        self._layout = layout
        self._scores: dict[int, tuple[tuple[float, ...], ...]] = {}
        self._field = field
        self._forests: list[IncrementalForest | BlockForest] = []
        # The numbers of trees that its forests went through: those of an engine that grows blocks follow
        # from them.
        self._stages: list[int] = []
        generator = np.random.default_rng(task.seed)
        self._groups = [generator.permutation(len(split.truth)) % GROUPS for split in field.splits]

    @property
    def forests(self) -> list[IncrementalForest | BlockForest]:
        """Its forests; they are grown again, to the same trees, if they were let go."""
        if not self._forests:
            task = self._task
            threads = useful_threads(task.features, task.threads)
            kind = IncrementalForest if isinstance(task.engine, GrowingForestEngine) else BlockForest
            self._forests = [
                kind(task, self._layout, split, self.params, threads=threads) for split in self._field.splits
            ]
            for size in self._stages:
                for forest in self._forests:
                    forest.grow(size)
        return self._forests

    @property
    def trees(self) -> int:
        """How many trees its forests have."""
        return self._stages[-1] if self._stages else 0

    def let_go(self) -> None:
        """Free the memory of its forests; what they scored is kept."""
        self._forests = []

    @property
    def nbytes(self) -> int:
        """How much memory its forests take, about."""
        return sum(forest.nbytes for forest in self._forests)

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees and score every cut there, and at each size of the space on the way.

        Raises:
            DataError: scikit-learn refuses the configuration, or the metric is not defined for the rows.
        """
        if trees <= self.trees:
            return
        started = time.monotonic()
        try:
            self._grow(trees)
        finally:
            self.seconds += time.monotonic() - started

    def _grow(self, trees: int) -> None:
        # What the first trees gain foretells what more of them will.
        early = 0 if self.trees else max(1, trees // 3)
        sizes = {early, trees, *self._layout.sizes}
        for size in sorted(size for size in sizes if self.trees < size <= trees):
            for forest in self.forests:
                forest.grow(size)
            self._stages.append(size)
            try:
                self._scores[size] = tuple(forest.scores() for forest in self.forests)
            except DataError:
                # Few trees leave rows without an answer, and a metric perhaps without a class.
                if size != early or size == trees:
                    raise
        self.intermediate_values.append(self.foretold())

    def means(self) -> NDArray[np.float64]:
        """Return the scores by size, ascending, and cut: (n_sizes, n_cuts), the mean over the forests."""
        return np.array([np.mean(self._scores[size], axis=0) for size in sorted(self._scores)])

    def best_cut(self) -> int:
        """Return the position of the best cut."""
        return pick_cut(self.means(), self._task.direction)

    def progress(self) -> dict[int, float]:
        """Return the score of the best cut by number of trees, ascending."""
        return dict(zip(sorted(self._scores), self.means()[:, self.best_cut()].tolist(), strict=True))

    def foretold(self) -> float:
        """Return the score of the best cut at the largest size of the space; see ``halving.foretold``."""
        return foretold(self.progress(), self._layout.sizes[-1])

    def foretold_without(self) -> NDArray[np.float64]:
        """Return the same without each group of rows, for which the gain so far is a part of the error."""
        progress, last = self.progress(), self._layout.sizes[-1]
        return np.array([foretold({**progress, self.trees: part}, last) for part in self.jackknife()])

    def converged(self) -> bool:
        """Say whether its forests are as good as larger ones would be; see ``halving.converged``."""
        sign = 1 if self._task.direction == "maximize" else -1
        scores = {trees: sign * score for trees, score in self.progress().items()}
        error = standard_error(self.jackknife())
        share = float(np.mean([forest.share() for forest in self.forests]))
        return converged(scores, self._layout.sizes[-1], error, share)

    def jackknife(self) -> NDArray[np.float64]:
        """Return the score of the best cut without each group of rows: (``GROUPS``,)."""
        cut = self.best_cut()
        found = [
            forest.scores_without(cut, groups, GROUPS)
            for forest, groups in zip(self.forests, self._groups, strict=True)
        ]
        mean: NDArray[np.float64] = np.mean(found, axis=0)
        return mean

    def failed(self, error: DataError) -> Trial:
        """Return the trial of a configuration that cannot be grown or scored."""
        name = self._task.engine.device
        return Trial(self.number, "failed", name, self.params, seconds=self.seconds, message=str(error))

    def trial(self, state: Literal["complete", "pruned"], message: str = "") -> Trial:
        """Return the trial as it stands: its parameters are the best setting of the largest size so far."""
        layout = self._layout
        sizes = sorted(self._scores)
        means = self.means()
        reached = [row for row, size in enumerate(sizes) if size in layout.sizes]
        cut = pick_cut(means[reached or slice(None)], self._task.direction)
        size = sizes[reached[-1]] if reached else sizes[-1]
        values = tuple(float(scores[cut]) for scores in self._scores[size])
        chosen = {TREES: size if reached else layout.sizes[0]} if layout.searched_sizes else {}
        many = len(sizes) > 1 or len(layout.cuts) > 1
        surface = Surface({TREES: tuple(sizes), **layout.axes}, tuple(means.ravel().tolist()))
        return Trial(
            number=self.number,
            state=state,
            engine=self._task.engine.device,
            params={**self.params, **chosen, **layout.cuts[cut]},
            value=float(np.mean(values)),
            values=values,
            seconds=self.seconds,
            message=message,
            steps=self.trees,
            surface=surface if many else None,
            intermediate_values=tuple(self.intermediate_values),
        )
