"""Growing forests: scikit-learn's grow tree by tree, those of other engines block by block."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import EngineUnavailableError
from dmls_core.models.engines import Engine, ForestEngine, GrowingForestEngine
from dmls_core.models.engines.base import Array, refusal
from dmls_core.models.trees import FlatTrees, read_trees
from dmls_core.search.forest.scoring import ForestScorer, ScoringSplit, SummedForest
from dmls_core.search.forest.space import PartitionedSpace, restrictiveness
from dmls_core.search.forest.trees import Nodes, Tree, TreeBuilder, build_trees, trees_before_builder
from dmls_core.search.task import SearchTask
from dmls_core.spec.definitions import Scalar

_NODE_BYTES = 64
"""Memory of a node in scikit-learn, without its value."""

CHUNK = 2**18
"""Numbers that are copied at once, for rows that descend a tree or predictions that are summed."""


@dataclass(frozen=True, slots=True)
class TreePredictions:
    """The predictions of one tree for the rows that it is scored on.

    ``rows`` are positions among the scored rows and ``leaves`` the leaf of each, both (n_predicted,); for
    ``pruned_leaves``, see ``Nodes.pruned_leaves``.
    """

    tree: Tree
    rows: NDArray[np.int64]
    leaves: NDArray[np.int64]
    pruned_leaves: NDArray[np.int32]


class IncrementalForest(SummedForest):
    """A forest of scikit-learn. Grown in steps, it equals the forest of a single fit."""

    def __init__(
        self,
        task: SearchTask,
        parts: PartitionedSpace,
        split: ScoringSplit,
        params: dict[str, Scalar],
        *,
        threads: int,
    ) -> None:
        super().__init__(task, split, len(parts.limits))
        self._parts = parts
        self._threads = threads
        engine = cast("GrowingForestEngine", task.engine)
        settings = engine.effective(task.model, parts.growth_params(params, 1))
        self._forest: Any = engine.unfitted(task.model, settings, seed=task.seed, threads=threads)
        self._forest.set_params(warm_start=True, n_estimators=0)
        self._builder: TreeBuilder | None = None
        self._trees: list[Tree] = []

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self._trees)

    @property
    def rows(self) -> int:
        """Number of rows that it grows on."""
        return len(self._split.features)

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        nodes = sum(tree.node_count for tree in self._trees)
        return int(nodes * (_NODE_BYTES + 8 * self.outputs) + self._sums.nbytes)

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees; see ``ForestScorer.grow``."""
        if trees <= self.trees:
            return
        weighted = self._split.weights is not None
        grown_itself = trees_before_builder(self._forest, weighted=weighted)
        if self._builder is None and self.trees <= grown_itself < trees:
            self.grow(grown_itself)
            split = self._split
            self._builder = TreeBuilder.of(self._forest, split.features, split.target, weighted=weighted)
        if self._builder is None:
            for tree, counts in self._fit(trees):
                self._add(self._predictions(tree, counts))
        else:
            seeds = self._builder.seeds(self.trees, trees)
            for predictions in build_trees(self._builder, seeds, self._threads, self._predictions):
                self._add(predictions)

    def _fit(self, trees: int) -> list[tuple[Tree, NDArray[np.int64] | None]]:
        """Grow the missing trees in scikit-learn; return them as ``TreeBuilder.grow`` does."""
        import sklearn

        before = self.trees
        self._forest.n_estimators = trees
        try:
            # The first fit has checked the data: on few rows, a second check takes longer than the trees.
            with (
                sklearn.config_context(assume_finite=True, skip_parameter_validation=before > 0),
                warnings.catch_warnings(),
            ):
                # The rows are the same at every step, as a warm start with balanced classes requires; and few
                # rows per tree are what max_samples asks for.
                warnings.filterwarnings("ignore", "class_weight presets|Using the fractional", UserWarning)
                self._forest.fit(self._split.features, self._split.target, self._split.weights)
        except ValueError as error:
            raise refusal(self._task.model, error) from error
        new = copy.copy(self._forest)
        new.estimators_ = self._forest.estimators_[before:]
        rows = len(self._split.features)
        drawn = [
            np.bincount(chosen, minlength=rows) if self._forest.bootstrap else None
            for chosen in new.estimators_samples_
        ]
        return [(one.tree_, counts) for one, counts in zip(new.estimators_, drawn, strict=True)]

    def _predictions(self, tree: Tree, counts: NDArray[np.int64] | None) -> TreePredictions:
        split = self._split
        pruned_leaves = Nodes.of(tree).pruned_leaves(self._parts.limits, len(split.features))
        scored = np.arange(len(split.truth))
        if split.out_of_bag and counts is not None:
            scored = np.flatnonzero(counts[split.scored] == 0)
        probed = split.scored[scored]
        step = max(1, CHUNK // split.probe.shape[1])
        leaves = [
            tree.apply(split.probe[probed[start : start + step]]) for start in range(0, len(probed), step)
        ]
        return TreePredictions(tree, scored, np.concatenate([*leaves, np.empty(0, np.int64)]), pruned_leaves)

    def _add(self, predictions: TreePredictions) -> None:
        self._trees.append(predictions.tree)
        self._counts[predictions.rows] += 1
        values = predictions.tree.value[:, 0, :]
        self._split_slots(predictions.pruned_leaves)
        slots = self._sums.shape[1]
        pruned_leaves = predictions.pruned_leaves[:, [self._slots.index(slot) for slot in range(slots)]]
        step = max(1, CHUNK // (slots * self.outputs))
        for start in range(0, len(predictions.rows), step):
            chunk = slice(start, start + step)
            ends = np.take(pruned_leaves, predictions.leaves[chunk], axis=0)
            self._sums[predictions.rows[chunk]] += np.take(values, ends, axis=0)

    def _split_slots(self, pruned_leaves: NDArray[np.int32]) -> None:
        """Give prunings separate sums from the first tree on in which they differ."""
        slots: dict[tuple[int, bytes], int] = {}
        before = self._sums.shape[1]
        # For each slot, the slot that its sums are copied from.
        source = list(range(before))
        taken: set[int] = set()
        for position, slot in enumerate(self._slots):
            key = slot, pruned_leaves[:, position].tobytes()
            if key not in slots:
                slots[key] = slot
                if slot in taken:
                    slots[key] = len(source)
                    source.append(slot)
                taken.add(slot)
            self._slots[position] = slots[key]
        if len(source) > before:
            self._sums = self._sums[:, source]

    def sums(self) -> tuple[NDArray[np.float64], list[int], NDArray[np.int64]]:
        """Return sums of predictions, (n_scored, n_slots, outputs), each pruning's slot, and votes."""
        return self._sums, self._slots, self._counts

    def release_forest(self) -> Any:  # noqa: ANN401 - scikit-learn is not typed
        """Return scikit-learn's forest with all its trees, and release them here."""
        template = self._forest.estimators_[0]
        if self._builder is not None:
            grown = []
            for seed, tree in zip(self._builder.seeds(0, self.trees), self._trees, strict=True):
                estimator = copy.copy(template)
                estimator.random_state, estimator.tree_ = seed, tree
                grown.append(estimator)
            self._forest.estimators_ = grown
        self._forest.set_params(n_estimators=self.trees)
        self._trees.clear()
        return self._forest


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
        self._counts = np.zeros(len(split.truth), np.int64)
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
        task, parts, weights = self._task, self._parts, self._split.weights
        engine = cast("ForestEngine", task.engine)
        fitted, drawn = engine.fit_block(
            task.model,
            parts.growth_params(self._params, trees - self._trees),
            self._split.features,
            self._split.target,
            n_classes=task.n_classes,
            seed=seed_of_block(task.seed, self._trees),
            threads=self._threads,
            **({} if weights is None else {"weights": weights}),
        )
        split = self._split
        votes = self._votes(drawn, trees - self._trees)
        probe = split.probe if votes is None else split.probe[engine.place(split.scored)]
        most = max(1, MAX_PREDICTIONS // (len(split.truth) * self.outputs))
        rows, first = int(split.features.shape[0]), 0
        for some in read_trees(fitted.to_treelite(), self.outputs, most=most):
            last = first + len(some.roots)
            part = None if votes is None else votes[:, first:last]
            for position, sums in sum_predictions(some, parts.limits, probe, rows, engine, part):
                self._sums[position] += sums
            first = last
        self._counts += first if votes is None else engine.fetch(votes.sum(axis=1)).astype(np.int64)
        self._trees = trees

    def _votes(self, drawn: Array | None, trees: int) -> Array | None:
        """Return whether each tree votes on each scored row, (n_scored, n_trees); ``None``: all do."""
        split = self._split
        if not split.out_of_bag:
            return None
        if drawn is None or drawn.shape != (trees, len(split.features)):
            raise EngineUnavailableError(f"{self._engine.name} did not report the rows that its trees drew")
        return ~drawn[:, self._engine.place(split.scored)].T

    def first_equal(self) -> list[int]:
        """Return every pruning itself: each has separate sums."""
        return list(range(len(self._parts.limits)))

    def has_votes(self) -> NDArray[np.bool_]:
        """Return for each scored row whether any tree votes on it."""
        return self._counts > 0

    def voting_share(self) -> float:
        """Return the mean share of trees that vote on a scored row."""
        return float(self._counts.mean() / self._trees)

    def mean(self, limit: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean prediction of the trees; see ``ForestScorer.mean``."""
        sums = self._engine.fetch(self._sums[limit])
        means: NDArray[np.float64] = sums[rows] / self._counts[rows, None]
        return means


def seed_of_block(seed: int, trees: int) -> int:
    """Return the seed of the block after ``trees`` trees; with one seed, all blocks would be equal."""
    return int(np.random.SeedSequence([seed, trees]).generate_state(1)[0])


def sum_predictions(
    trees: FlatTrees,
    limits: Sequence[Mapping[str, Scalar]],
    probe: Array,
    rows: int,
    engine: Engine,
    votes: Array | None = None,
) -> Iterator[tuple[int, Array]]:
    """Yield the position of each pruning and the sum of the trees' predictions under it.

    A row's node under a limit of depth is its node after so many steps; a limit of rows turns nodes into
    leaves before the rows descend. ``limits`` are values of ``max_depth`` and ``min_samples_split``;
    ``probe`` is (n_scored, n_features), and each sum (n_scored, outputs), on the engine's device; ``rows`` is
    the number of rows that the trees have grown on. ``votes`` says which trees count for which row,
    (n_scored, n_trees) bool; by default all do.
    """
    place = engine.place
    features, thresholds, values = place(trees.features), place(trees.thresholds), place(trees.values)
    lines = place(np.arange(probe.shape[0])[:, None])
    start = place(np.tile(trees.roots, (probe.shape[0], 1)))
    itself = np.arange(len(trees.rows))[:, None]
    for least, group in _by_rows(limits, rows).items():
        children = place(np.where((trees.rows < least)[:, None], itself, trees.children).ravel())
        at, steps, sums = start, 0, None
        for position, limit in sorted(group, key=lambda one: one[1]):
            while steps < min(limit, trees.depth):
                up = (probe[lines, features[at]] > thresholds[at]).astype(np.int64)
                at, steps, sums = children[2 * at + up], steps + 1, None
            if sums is None:
                each = values[at]
                sums = (each if votes is None else each * votes[:, :, None]).sum(axis=1)
            yield position, sums


def _by_rows(limits: Sequence[Mapping[str, Scalar]], rows: int) -> dict[float, list[tuple[int, float]]]:
    """Return minimum rows of a split -> the prunings with it, each with its maximum depth."""
    groups: dict[float, list[tuple[int, float]]] = {}
    for number, limit in enumerate(limits):
        least = restrictiveness("min_samples_split", limit.get("min_samples_split", 0), rows)
        depth = -restrictiveness("max_depth", limit.get("max_depth", "none"), rows)
        groups.setdefault(least, []).append((number, depth))
    return groups
