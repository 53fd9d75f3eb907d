"""A forest that grows tree by tree, and what it answers under every cut."""

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
"""What scikit-learn keeps of a node besides its value."""

CHUNK = 2**18
"""Numbers that are copied at once: of rows that walk down a tree, or of answers that are added up."""

CHECKED = 2
"""Trees that scikit-learn's forest grows itself, with all its checks."""


@dataclass(frozen=True, slots=True)
class TreePredictions:
    """What one tree says of the rows that it is scored on.

    Attributes:
        tree: the tree.
        rows: (n_answered,) positions among the scored rows.
        leaves: (n_answered,) the node in which each ends.
        pruned_leaves: (n_nodes, n_cuts); see ``Nodes.pruned_leaves``.
    """

    tree: Tree
    rows: NDArray[np.int64]
    leaves: NDArray[np.int64]
    pruned_leaves: NDArray[np.int32]


class IncrementalForest(ForestScorer):
    """A forest of scikit-learn. Grown in steps, it is the forest that one fit would have grown.

    Its trees split codes where the split holds codes.
    """

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
        """How many trees it has."""
        return len(self._trees)

    @property
    def nbytes(self) -> int:
        """How much memory it takes, about."""
        nodes = sum(tree.node_count for tree in self._trees)
        return int(nodes * (NODE_BYTES + 8 * self.outputs) + self._sums.nbytes)

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees, or stay as it is if there are as many.

        Raises:
            DataError: scikit-learn refuses the hyperparameters.
        """
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
            for answers in build_trees(self._builder, seeds, self._threads, self._predictions):
                self._add(answers)

    def _fit(self, trees: int) -> list[tuple[Tree, NDArray[np.int64] | None]]:
        """Have scikit-learn grow the trees that are missing; return them as ``TreeBuilder.grow`` does."""
        before = self.trees
        self._forest.set_params(n_estimators=trees)
        try:
            # What the first trees' fit has checked is not checked again: on few rows that takes longer than
            # the trees.
            with (
                sklearn.config_context(assume_finite=True, skip_parameter_validation=before > 0),
                warnings.catch_warnings(),
            ):
                # Balanced classes and a warm start: the rows are the same at every step. And few rows a tree
                # are what max_samples asks for.
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

    def _add(self, answers: TreePredictions) -> None:
        self._trees.append(answers.tree)
        self._counts[answers.rows] += 1
        values = answers.tree.value[:, 0, :]
        self._part(answers.pruned_leaves)
        slots = self._sums.shape[1]
        pruned_leaves = answers.pruned_leaves[:, [self._slots.index(slot) for slot in range(slots)]]
        step = max(1, CHUNK // (slots * self.outputs))
        for start in range(0, len(answers.rows), step):
            chunk = slice(start, start + step)
            ends = np.take(pruned_leaves, answers.leaves[chunk], axis=0)
            self._sums[answers.rows[chunk]] += np.take(values, ends, axis=0)

    def _part(self, pruned_leaves: NDArray[np.int32]) -> None:
        """Give limits sums of their own from the first tree on to which they do different things."""
        places: dict[tuple[int, bytes], int] = {}
        before = self._sums.shape[1]
        # Of each slot the one that its sums are copied from.
        source = list(range(before))
        taken: set[int] = set()
        for cut, slot in enumerate(self._slots):
            key = slot, pruned_leaves[:, cut].tobytes()
            if key not in places:
                places[key] = slot
                if slot in taken:
                    places[key] = len(source)
                    source.append(slot)
                taken.add(slot)
            self._slots[cut] = places[key]
        if len(source) > before:
            self._sums = self._sums[:, source]

    def release_forest(self) -> Any:  # noqa: ANN401 - scikit-learn is not typed
        """Return scikit-learn's forest with all its trees; they are not held here any more."""
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
        """Say of each scored row whether any tree has answered it."""
        return self._counts > 0

    def voting_share(self) -> float:
        """Return the share of the trees that answer a scored row; see ``ForestScorer.share``."""
        return float(self._counts.mean() / self.trees)

    def slots(self) -> list[int]:
        """Return of each cut the first one that has done the same to every tree so far."""
        return [self._slots.index(slot) for slot in self._slots]

    def mean(self, cut: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean answer of the trees; see ``ForestScorer.mean``."""
        found: NDArray[np.float64] = self._sums[rows, self._slots[cut]] / self._counts[rows, None]
        return found
