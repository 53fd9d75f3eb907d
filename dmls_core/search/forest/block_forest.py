"""A forest that an engine grows in blocks, each a separate forest, scored on the engine's device.

Engines whose forests cannot grow further (cuML's) fit a new forest, with another seed, for the missing trees.
Its trees are read from the Treelite model; rows descend all trees of a block at once, by operations that
NumPy's and CuPy's arrays have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.engines import Engine
from dmls_core.models.engines.base import Array
from dmls_core.models.trees import FlatTrees, read_trees
from dmls_core.search.forest.scoring import ForestScorer, ScoringSplit
from dmls_core.search.forest.space import PartitionedSpace, restrictiveness
from dmls_core.search.task import SearchTask
from dmls_core.spec.definitions import Scalar

MAX_PREDICTIONS = 4 * 2**20
"""Maximum predictions in memory at once: rows times trees times outputs."""


class BlockForest(ForestScorer):
    """A forest of an engine that fits whole forests only; it keeps only the sums of their predictions."""

    def __init__(
        self,
        task: SearchTask,
        parts: PartitionedSpace,
        split: ScoringSplit,
        params: dict[str, Scalar],
        *,
        threads: int,
    ) -> None:
        self._engine = task.engine
        super().__init__(task, split, self._engine.fetch(split.target))
        self._parts = parts
        self._params = params
        self._threads = threads
        self._trees = 0
        empty = np.zeros((len(split.truth), self.outputs))
        self._sums = [self._engine.place(empty.copy()) for _ in parts.limits]

    @property
    def trees(self) -> int:
        """Number of trees."""
        return self._trees

    @property
    def nbytes(self) -> int:
        """Memory of its sums in bytes."""
        return sum(int(sums.nbytes) for sums in self._sums)

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees; see ``ForestScorer.grow``."""
        if trees <= self._trees:
            return
        task, parts = self._task, self._parts
        block = task.engine.fit(
            task.model,
            parts.growth_params(self._params, trees - self._trees),
            self._split.features,
            self._split.target,
            n_classes=task.n_classes,
            seed=seed_of_block(task.seed, self._trees),
            threads=self._threads,
        ).to_treelite()
        most = max(1, MAX_PREDICTIONS // (len(self._split.truth) * self.outputs))
        rows = int(self._split.features.shape[0])
        for some in read_trees(block, self.outputs, most=most):
            predictions = sum_predictions(some, parts.limits, self._split.probe, rows, self._engine)
            for place, found in predictions:
                self._sums[place] += found
        self._trees = trees

    def first_equal(self) -> list[int]:
        """Return every pruning itself: each has separate sums."""
        return list(range(len(self._parts.limits)))

    def has_votes(self) -> NDArray[np.bool_]:
        """Return all true: no scored row was grown on."""
        return np.ones(len(self._split.truth), np.bool_)

    def voting_share(self) -> float:
        """Return 1: every tree votes on every row."""
        return 1.0

    def mean(self, limit: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean prediction of the trees; see ``ForestScorer.mean``."""
        found: NDArray[np.float64] = self._engine.fetch(self._sums[limit])[rows] / self._trees
        return found


def seed_of_block(seed: int, trees: int) -> int:
    """Return the seed of the block after ``trees`` trees; with one seed, all blocks would be equal."""
    return int(np.random.SeedSequence([seed, trees]).generate_state(1)[0])


def sum_predictions(
    trees: FlatTrees,
    limits: Sequence[Mapping[str, Scalar]],
    probe: Array,
    rows: int,
    engine: Engine,
) -> Iterator[tuple[int, Array]]:
    """Yield the position of each pruning and the sum of the trees' predictions under it.

    A row's node under a limit of depth is its node after so many steps; a limit of rows turns nodes into
    leaves before the rows descend. ``limits`` are values of ``max_depth`` and ``min_samples_split``;
    ``probe`` is (n_scored, n_features), and each sum (n_scored, outputs), on the engine's device; ``rows`` is
    the number of rows that the trees have grown on.
    """
    place = engine.place
    features, thresholds, values = place(trees.features), place(trees.thresholds), place(trees.values)
    lines = place(np.arange(probe.shape[0])[:, None])
    start = place(np.tile(trees.roots, (probe.shape[0], 1)))
    itself = np.arange(len(trees.rows))[:, None]
    for least, group in _by_rows(limits, rows).items():
        children = place(np.where((trees.rows < least)[:, None], itself, trees.children).ravel())
        at, steps, found = start, 0, None
        for position, limit in sorted(group, key=lambda one: one[1]):
            while steps < min(limit, trees.depth):
                up = (probe[lines, features[at]] > thresholds[at]).astype(np.int64)
                at, steps, found = children[2 * at + up], steps + 1, None
            if found is None:
                found = values[at].sum(axis=1)
            yield position, found


def _by_rows(limits: Sequence[Mapping[str, Scalar]], rows: int) -> dict[float, list[tuple[int, float]]]:
    """Return minimum rows of a split -> the prunings with it, each with its maximum depth."""
    found: dict[float, list[tuple[int, float]]] = {}
    for number, limit in enumerate(limits):
        least = restrictiveness("min_samples_split", limit.get("min_samples_split", 0), rows)
        depth = -restrictiveness("max_depth", limit.get("max_depth", "none"), rows)
        found.setdefault(least, []).append((number, depth))
    return found
