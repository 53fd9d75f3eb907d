"""One structural configuration of a forest, and its growing forests."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.models.engines import GrowingForestEngine
from dmls_core.models.engines.base import useful_threads
from dmls_core.search.forest.block_forest import BlockForest
from dmls_core.search.forest.halving import Rung, converged, extrapolate, standard_error
from dmls_core.search.forest.incremental_forest import IncrementalForest
from dmls_core.search.forest.scoring import ScoringData
from dmls_core.search.forest.space import TREES, PartitionedSpace
from dmls_core.search.forest.tree_pruning import best_limits
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import State, Surface, Trial
from dmls_core.spec.definitions import Scalar

GROUPS = 16
"""Groups of rows of the jackknife."""


class Configuration:
    """A structural configuration and the forests that grow for it.

    ``intermediate_values`` holds the extrapolated score after each rung.
    """

    def __init__(
        self,
        task: SearchTask,
        parts: PartitionedSpace,
        data: ScoringData,
        number: int,
        params: dict[str, Scalar],
    ) -> None:
        self.number = number
        self.params = params
        self.seconds = 0.0
        self.intermediate_values: list[float] = []
        self._task = task
        self._parts = parts
        self._data = data
        self._scores: dict[int, tuple[tuple[float, ...], ...]] = {}
        self._forests: list[IncrementalForest | BlockForest] = []
        # Sizes that its forests went through: the blocks of a ``BlockForest`` depend on them.
        self._stages: list[int] = []
        generator = np.random.default_rng(task.seed)
        self._groups = [generator.permutation(len(split.truth)) % GROUPS for split in data.splits]

    @property
    def forests(self) -> list[IncrementalForest | BlockForest]:
        """Its forests; freed forests grow again with the same trees."""
        if not self._forests:
            task = self._task
            threads = useful_threads(task.features, task.threads)
            kind = IncrementalForest if isinstance(task.engine, GrowingForestEngine) else BlockForest
            self._forests = [
                kind(task, self._parts, split, self.params, threads=threads) for split in self._data.splits
            ]
            for size in self._stages:
                for forest in self._forests:
                    forest.grow(size)
        return self._forests

    @property
    def trees(self) -> int:
        """Number of trees of each forest."""
        return self._stages[-1] if self._stages else 0

    @property
    def nbytes(self) -> int:
        """Approximate memory of its forests in bytes."""
        return sum(forest.nbytes for forest in self._forests)

    def free(self) -> None:
        """Free the memory of its forests; their scores are kept."""
        self._forests = []

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees; score every pruning there and at each smaller size of the space.

        Raise ``DataError`` if the library refuses the configuration, or the metric is undefined for the rows.
        """
        if trees <= self.trees:
            return
        started = time.monotonic()
        try:
            self._grow(trees)
        finally:
            self.seconds += time.monotonic() - started

    def _grow(self, trees: int) -> None:
        # The score is extrapolated from the gain of the first trees.
        early = 0 if self.trees else max(1, trees // 3)
        sizes = {early, trees, *self._parts.sizes}
        for size in sorted(size for size in sizes if self.trees < size <= trees):
            for forest in self.forests:
                forest.grow(size)
            self._stages.append(size)
            try:
                self._scores[size] = tuple(forest.scores() for forest in self.forests)
            except DataError:
                # Few trees leave rows without a prediction, and perhaps a metric without a class.
                if size != early or size == trees:
                    raise
        self.intermediate_values.append(self.extrapolated_score())

    def means(self) -> NDArray[np.float64]:
        """Return the mean scores over forests, (n_sizes, n_limits), with ascending sizes."""
        return np.array([np.mean(self._scores[size], axis=0) for size in sorted(self._scores)])

    def scores_by_size(self) -> dict[int, float]:
        """Return number of trees -> score of the best pruning, ascending."""
        means = self.means()
        best = best_limits(means, self._task.direction)
        return dict(zip(sorted(self._scores), means[:, best].tolist(), strict=True))

    def extrapolated_score(self) -> float:
        """Return the expected score at the largest size of the space; see ``extrapolate``."""
        return extrapolate(self.scores_by_size(), self._parts.sizes[-1])

    def rung(self) -> Rung:
        """Return the rung that successive halving compares."""
        scores, last = self.scores_by_size(), self._parts.sizes[-1]
        parts = self._jackknife()
        share = float(np.mean([forest.voting_share() for forest in self.forests]))
        signed = {trees: self._task.sign * score for trees, score in scores.items()}
        return Rung(
            self.trial("pruned", f"{self.trees} trees"),
            # The gain so far is the same without each group: it is part of the error.
            tuple(extrapolate({**scores, self.trees: float(part)}, last) for part in parts),
            converged(signed, last, standard_error(parts), share),
        )

    def _jackknife(self) -> NDArray[np.float64]:
        """Return the score of the best pruning without each group of rows: (``GROUPS``,)."""
        best = best_limits(self.means(), self._task.direction)
        found = [
            forest.scores_without(best, groups, GROUPS)
            for forest, groups in zip(self.forests, self._groups, strict=True)
        ]
        mean: NDArray[np.float64] = np.mean(found, axis=0)
        return mean

    def failed(self, error: DataError) -> Trial:
        """Return the trial of a configuration that cannot be grown or scored."""
        name = self._task.engine.device
        return Trial(self.number, "failed", name, self.params, seconds=self.seconds, message=str(error))

    def trial(self, state: State, message: str = "") -> Trial:
        """Return the trial so far; its parameters are the best setting of the largest size reached."""
        parts = self._parts
        sizes = sorted(self._scores)
        means = self.means()
        reached = [row for row, size in enumerate(sizes) if size in parts.sizes]
        best = best_limits(means[reached or slice(None)], self._task.direction)
        size = sizes[reached[-1]] if reached else sizes[-1]
        values = tuple(float(scores[best]) for scores in self._scores[size])
        chosen = {TREES: size if reached else parts.sizes[0]} if parts.sizes_searched else {}
        many = len(sizes) > 1 or len(parts.limits) > 1
        surface = Surface({TREES: tuple(sizes), **parts.axes}, tuple(means.ravel().tolist()))
        return Trial(
            number=self.number,
            state=state,
            engine=self._task.engine.device,
            params={**self.params, **chosen, **parts.limits[best]},
            value=float(np.mean(values)),
            values=values,
            seconds=self.seconds,
            message=message,
            steps=self.trees,
            surface=surface if many else None,
            intermediate_values=tuple(self.intermediate_values),
        )
