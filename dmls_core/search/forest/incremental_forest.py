"""A scikit-learn forest that grows tree by tree and keeps its predictions under every pruning."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import sklearn
from numpy.typing import NDArray

from dmls_core.models.engines import GrowingForestEngine
from dmls_core.models.engines.base import refusal
from dmls_core.search.forest.scoring import ForestScorer, ScoringSplit
from dmls_core.search.forest.space import PartitionedSpace
from dmls_core.search.forest.tree_builder import TreeBuilder, build_trees
from dmls_core.search.forest.tree_pruning import Nodes, Tree
from dmls_core.search.task import SearchTask
from dmls_core.spec.definitions import Scalar

NODE_BYTES = 64
"""Memory of a node in scikit-learn, without its value."""

CHUNK = 2**18
"""Numbers that are copied at once, for rows that descend a tree or predictions that are summed."""

CHECKED = 2
"""Trees that scikit-learn's forest grows itself, with all its checks."""


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


class IncrementalForest(ForestScorer):
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
        super().__init__(task, split, split.target)
        self._parts = parts
        self._threads = threads
        engine = cast("GrowingForestEngine", task.engine)
        settings = engine.effective(task.model, parts.growth_params(params, 1))
        self._forest: Any = engine.unfitted(task.model, settings, seed=task.seed, threads=threads)
        self._forest.set_params(warm_start=True, n_estimators=0)
        self._builder: TreeBuilder | None = None
        self._trees: list[Tree] = []
        # (n_scored, n_slots, outputs): limits that have made no difference to any tree so far share a slot.
        self._sums = np.zeros((len(split.truth), 1, self.outputs))
        self._slots = [0] * len(parts.limits)
        self._counts = np.zeros(len(split.truth), np.int64)

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self._trees)

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        nodes = sum(tree.node_count for tree in self._trees)
        return int(nodes * (NODE_BYTES + 8 * self.outputs) + self._sums.nbytes)

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees; see ``ForestScorer.grow``."""
        if trees <= self.trees:
            return
        if self.trees < CHECKED < trees:
            self.grow(CHECKED)
            self._builder = TreeBuilder.of(self._forest, self._split.features, self._split.target)
        if self._builder is None:
            for tree, counts in self._fit(trees):
                self._add(self._predictions(tree, counts))
        else:
            seeds = self._builder.seeds(self.trees, trees)
            for predictions in build_trees(self._builder, seeds, self._threads, self._predictions):
                self._add(predictions)

    def _fit(self, trees: int) -> list[tuple[Tree, NDArray[np.int64] | None]]:
        """Grow the missing trees in scikit-learn; return them as ``TreeBuilder.grow`` does."""
        before = self.trees
        self._forest.set_params(n_estimators=trees)
        try:
            # The first fit has checked the data: on few rows, a second check takes longer than the trees.
            with (
                sklearn.config_context(assume_finite=True, skip_parameter_validation=before > 0),
                warnings.catch_warnings(),
            ):
                # The rows are the same at every step, as a warm start with balanced classes requires; and few
                # rows per tree are what max_samples asks for.
                warnings.filterwarnings("ignore", "class_weight presets|Using the fractional", UserWarning)
                self._forest.fit(self._split.features, self._split.target)
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
        places: dict[tuple[int, bytes], int] = {}
        before = self._sums.shape[1]
        # For each slot, the slot that its sums are copied from.
        source = list(range(before))
        taken: set[int] = set()
        for position, slot in enumerate(self._slots):
            key = slot, pruned_leaves[:, position].tobytes()
            if key not in places:
                places[key] = slot
                if slot in taken:
                    places[key] = len(source)
                    source.append(slot)
                taken.add(slot)
            self._slots[position] = places[key]
        if len(source) > before:
            self._sums = self._sums[:, source]

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

    def has_votes(self) -> NDArray[np.bool_]:
        """Return for each scored row whether any tree votes on it."""
        return self._counts > 0

    def voting_share(self) -> float:
        """Return the mean share of trees that vote on a scored row."""
        return float(self._counts.mean() / self.trees)

    def first_equal(self) -> list[int]:
        """Return for each pruning the first one that is equal in every tree so far."""
        return [self._slots.index(slot) for slot in self._slots]

    def mean(self, limit: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean prediction of the trees; see ``ForestScorer.mean``."""
        found: NDArray[np.float64] = self._sums[rows, self._slots[limit]] / self._counts[rows, None]
        return found
