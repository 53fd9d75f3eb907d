"""A forest that an engine grows in blocks, each a forest of its own, scored where its rows lie.

Engines whose forests cannot go on growing (cuML's) fit a new one, with another seed, for the trees that are
missing. Treelite models say what these are; rows walk down all trees of a block at once, by operations that
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
from dmls_core.search.forest.scorer import ForestScorer
from dmls_core.search.forest.scoring import ScoringSplit
from dmls_core.search.forest.space import PartitionedSpace, restrictiveness
from dmls_core.search.task import SearchTask
from dmls_core.spec.definitions import Scalar

ANSWERS = 4 * 2**20
"""Numbers that the trees answer at once at most: rows times trees times outputs."""


class BlockForest(ForestScorer):
    """A forest of an engine that fits whole forests only. Nothing is kept of it but sums of its answers."""

    def __init__(
        self,
        task: SearchTask,
        layout: PartitionedSpace,
        split: ScoringSplit,
        params: dict[str, Scalar],
        *,
        threads: int,
    ) -> None:
        self._engine = task.engine
        super().__init__(task, split, self._engine.fetch(split.target))
        self._layout = layout
        self._params = params
        self._threads = threads
        self._trees = 0
        empty = np.zeros((len(split.truth), self.outputs))
        self._sums = [self._engine.place(empty.copy()) for _ in layout.cuts]

    @property
    def trees(self) -> int:
        """How many trees it has."""
        return self._trees

    @property
    def nbytes(self) -> int:
        """How much memory its sums take."""
        return sum(int(sums.nbytes) for sums in self._sums)

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees; see ``ForestScorer.grow``."""
        if trees <= self._trees:
            return
        task, layout = self._task, self._layout
        block = task.engine.fit(
            task.model,
            layout.grown(self._params, trees - self._trees),
            self._split.features,
            self._split.target,
            n_classes=task.n_classes,
            seed=seed_of_block(task.seed, self._trees),
            threads=self._threads,
        ).to_treelite()
        most = max(1, ANSWERS // (len(self._split.truth) * self.outputs))
        rows = int(self._split.features.shape[0])
        for some in read_trees(block, self.outputs, most=most):
            answers = answer(some, layout.cuts, self._split.probe, rows, self._engine)
            for cut, found in answers:
                self._sums[cut] += found
        self._trees = trees

    def slots(self) -> list[int]:
        """Return every cut itself: the sums are kept apart."""
        return list(range(len(self._layout.cuts)))

    def answered(self) -> NDArray[np.bool_]:
        """Say that every row is answered: none of them was grown on."""
        return np.ones(len(self._split.truth), np.bool_)

    def share(self) -> float:
        """Say that every tree answers every row."""
        return 1.0

    def mean(self, cut: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean answer of the trees; see ``ForestScorer.mean``."""
        found: NDArray[np.float64] = self._engine.fetch(self._sums[cut])[rows] / self._trees
        return found


def seed_of_block(seed: int, trees: int) -> int:
    """Return the seed of the block that follows so many trees: blocks of one seed would be the same trees."""
    return int(np.random.SeedSequence([seed, trees]).generate_state(1)[0])


def answer(
    trees: FlatTrees,
    cuts: Sequence[Mapping[str, Scalar]],
    probe: Array,
    rows: int,
    engine: Engine,
) -> Iterator[tuple[int, Array]]:
    """Ask trees about rows under each cut.

    A cut by depth is where a row is after so many steps; one by rows turns nodes into leaves before the walk.

    Args:
        trees: the trees.
        cuts: of ``max_depth`` and ``min_samples_split``.
        probe: (n_scored, n_features) on the engine's device.
        rows: rows of the matrix that the trees have grown on.
        engine: whose device it is.

    Yields:
        The position of a cut, and what the trees answer in sum: (n_scored, outputs) on the device.
    """
    place = engine.place
    features, thresholds, values = place(trees.features), place(trees.thresholds), place(trees.values)
    lines = place(np.arange(probe.shape[0])[:, None])
    start = place(np.tile(trees.roots, (probe.shape[0], 1)))
    itself = np.arange(len(trees.rows))[:, None]
    for least, group in _by_rows(cuts, rows).items():
        children = place(np.where((trees.rows < least)[:, None], itself, trees.children).ravel())
        at, steps, found = start, 0, None
        for cut, limit in sorted(group, key=lambda one: one[1]):
            while steps < min(limit, trees.depth):
                up = (probe[lines, features[at]] > thresholds[at]).astype(np.int64)
                at, steps, found = children[2 * at + up], steps + 1, None
            if found is None:
                found = values[at].sum(axis=1)
            yield cut, found


def _by_rows(cuts: Sequence[Mapping[str, Scalar]], rows: int) -> dict[float, list[tuple[int, float]]]:
    """Return the least rows of a split -> the cuts with it, each with its largest depth."""
    found: dict[float, list[tuple[int, float]]] = {}
    for number, cut in enumerate(cuts):
        least = restrictiveness("min_samples_split", cut.get("min_samples_split", 0), rows)
        depth = -restrictiveness("max_depth", cut.get("max_depth", "none"), rows)
        found.setdefault(least, []).append((number, depth))
    return found
