"""Nested search on a cluster: forests grow on the shards of their workers, and score rows of other shards.

The functions at the end run on workers. Forests stay there during the search; predictions return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.cluster import ShardedMatrix, deal
from dmls_core.models.engines.base import useful_threads
from dmls_core.models.engines.lightgbm_rows import sample_to_bin
from dmls_core.models.engines.sharded import Rows, Shard, send_rows
from dmls_core.models.engines.sharded_forests import join_forests, shard_seed, trees_of_shards
from dmls_core.search.forest.growing import IncrementalForest
from dmls_core.search.forest.scoring import (
    MIN_SCORED,
    Bins,
    ScoringData,
    ScoringSplit,
    SummedForest,
    most_scored,
)
from dmls_core.search.forest.space import PartitionedSpace
from dmls_core.search.forest.trees import prune_forest
from dmls_core.search.task import SearchTask
from dmls_core.spec.definitions import Scalar
from dmls_core.stored_matrix import BLOCK_BYTES

if TYPE_CHECKING:
    from distributed import Future

    from dmls_core.models.engines.base import Forest


def prepare_shards(task: SearchTask, limits: int) -> ScoringData:
    """Return the rows of a task on a cluster to grow on and to score; see ``prepare_scoring``.

    If the task allows it, forests grow on all rows, and a tree votes on rows of other shards. Else they are
    scored on the first fold.
    """
    matrix: ShardedMatrix = task.features
    bins = Bins.of(sample_to_bin(matrix), seed=task.seed) if task.model.family == "random-forest" else None
    nodes = matrix.cluster.nodes
    # The sums of all nodes and the total are in the trainer at once.
    limit = most_scored(task, limits * (nodes + 1))
    limit = min(limit, max(MIN_SCORED, BLOCK_BYTES // (4 * matrix.shape[1])))
    rows: NDArray[np.integer] = np.arange(len(matrix), dtype=np.int32)
    train = None if task.out_of_bag else task.folds[0].train
    scored = rows if train is None else task.folds[0].test
    if len(scored) > limit:
        scored = np.sort(np.random.default_rng(task.seed).choice(scored, limit, replace=False))
    probe = matrix[scored]
    if bins:
        bins.encode(probe, probe)
    grown = matrix if train is None else matrix.take(train)
    target = task.target if train is None else task.target[train]
    weights = task.weighing(train).get("weights")
    voted = [np.arange(len(scored))] * nodes
    if train is None:
        owners = deal(len(matrix), nodes, task.seed)[scored]
        voted = [np.flatnonzero(owners != number) for number in range(nodes)]
    shards = ForestShards((grown, target, weights), probe, voted, bins, task.seed)
    split = ScoringSplit(
        features=shards,
        target=target,
        probe=probe,
        scored=np.arange(len(scored)),
        truth=task.truth[scored],
        out_of_bag=train is None,
        scored_weights=None if task.weights is None else task.weights[scored],
    )
    return ScoringData((split,), bins)


class ForestShards:
    """Rows on the workers of a cluster, to grow forests on and to score them.

    ``probe`` are the rows to score; trees of shard ``i`` vote on those at the positions ``voted[i]``.
    ``forests`` are those that grow now, on each shard. They hold the rows, too, so none outlives a loss.
    """

    def __init__(
        self,
        rows: Rows,
        probe: NDArray[np.float32],
        voted: list[NDArray[np.intp]],
        bins: Bins | None,
        seed: int,
    ) -> None:
        self.cluster = rows[0].cluster
        self.voted = voted
        self.bins = bins
        self.forests: WeakKeyDictionary[ShardedForest, list[Future]] = WeakKeyDictionary()
        self._rows = rows
        self._probe = probe
        self._seed = seed
        self._parts: list[Future] = []
        self._generation = 0

    def parts(self) -> list[Future]:
        """Return the ``ScoringSplit`` of each shard; after a worker was lost, all rows are sent again."""
        if self._generation != self.cluster.generation:
            self._parts = []
            self.forests.clear()
            shards = send_rows(self._rows, seed=self._seed)
            parts = []
            for number, (shard, voted) in enumerate(zip(shards, self.voted, strict=True)):
                (probe,) = self.cluster.send(number, [self._probe[voted]])
                parts.append(self.cluster.submit(number, _split_of_shard, shard, probe, self.bins))
            self.cluster.wait(parts)
            self._parts, self._generation = parts, self.cluster.generation
        return self._parts


class ShardedForest(SummedForest):
    """A forest that grows on all shards. Grown in steps, it equals the forest of a single fit."""

    def __init__(
        self,
        task: SearchTask,
        parts: PartitionedSpace,
        split: ScoringSplit,
        params: dict[str, Scalar],
    ) -> None:
        super().__init__(task, split, len(parts.limits))
        self._shards: ForestShards = split.features
        self._cluster = self._shards.cluster
        self._arguments = parts, params
        self._trees = 0
        self._nbytes = 0

    @property
    def trees(self) -> int:
        """Number of trees."""
        return self._trees

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes, of the process that holds most."""
        return max(self._nbytes, int(self._sums.nbytes))

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees; see ``ForestScorer.grow``."""
        if trees <= self._trees:
            return
        votes: list[ShardVotes] = self._cluster.retried(lambda: self._grow(trees))
        self._merge(votes)
        self._trees = trees

    def _grow(self, trees: int) -> list[ShardVotes]:
        splits, grown = self._shards.parts(), self._shards.forests
        if self not in grown:  # the first time, or after a loss
            task = replace(self._task, features=None, target=None, truth=np.empty(0), folds=(), weights=None)
            grown[self] = [
                self._cluster.submit(
                    number,
                    _start_forest,
                    replace(task, seed=shard_seed(task.seed, number)),
                    split,
                    *self._arguments,
                )
                for number, split in enumerate(splits)
            ]
        counts = trees_of_shards(trees, len(splits))
        calls = [
            self._cluster.submit(number, _grow_on_shard, forest, count)
            for number, (forest, count) in enumerate(zip(grown[self], counts, strict=True))
        ]
        votes: list[ShardVotes] = self._cluster.results(calls)
        return votes

    def _merge(self, votes: list[ShardVotes]) -> None:
        """Add up the predictions of all shards; prunings that are equal on each share a slot."""
        keys = list(zip(*(part.slots for part in votes), strict=True))
        slots = {key: slot for slot, key in enumerate(dict.fromkeys(keys))}
        self._slots = [slots[key] for key in keys]
        self._sums = np.zeros((len(self._counts), len(slots), self.outputs))
        self._counts[:] = 0
        for number, part in enumerate(votes):
            rows = self._shards.voted[number]
            self._counts[rows] += part.counts
            columns = np.arange(self.outputs)
            if self.codes is not None and part.codes is not None:
                columns = np.searchsorted(self.codes, part.codes)
            for key, slot in slots.items():
                self._sums[:, slot][np.ix_(rows, columns)] += part.sums[:, key[number]]
        self._nbytes = max(part.nbytes for part in votes)

    def release_forest(self, trees: int, limits: Mapping[str, Scalar]) -> Forest:
        """Return scikit-learn's forest with the first ``trees`` trees, pruned, and release all here."""

        def attempt() -> list[Forest]:
            self._grow(max(trees, self._trees))
            forests = self._shards.forests.pop(self)
            counts = trees_of_shards(trees, len(forests))
            calls = [
                self._cluster.submit(number, _prune_on_shard, forest, count, limits, self._shards.bins)
                for number, (forest, count) in enumerate(zip(forests, counts, strict=True))
                if count
            ]
            grown: list[Forest] = self._cluster.results(calls)
            return grown

        return join_forests(self._cluster.retried(attempt), seed=self._task.seed)


@dataclass(frozen=True, slots=True)
class ShardVotes:
    """The predictions of one shard's trees; see ``IncrementalForest.sums``.

    ``codes`` are the classes in the shard, ``nbytes`` the memory of its forest.
    """

    sums: NDArray[np.float64]
    slots: list[int]
    counts: NDArray[np.int64]
    codes: NDArray[Any] | None
    nbytes: int


def _split_of_shard(shard: Shard, probe: NDArray[np.float32], bins: Bins | None) -> ScoringSplit:
    """Encode a shard in place, and return it with the rows to score."""
    if bins:
        bins.encode(shard.features, shard.features)
    rows = np.arange(len(probe))
    return ScoringSplit(shard.features, shard.target, probe, rows, rows, False, shard.weights)


def _start_forest(
    task: SearchTask, split: ScoringSplit, parts: PartitionedSpace, params: dict[str, Scalar]
) -> IncrementalForest:
    """Return a forest without trees on a shard."""
    from distributed import get_worker

    threads = useful_threads(split.features, get_worker().state.nthreads)
    return IncrementalForest(task, parts, split, params, threads=threads)


def _grow_on_shard(forest: IncrementalForest, trees: int) -> ShardVotes:
    """Grow a shard's forest to ``trees`` trees; return their predictions."""
    forest.grow(trees)
    sums, slots, counts = forest.sums()
    return ShardVotes(sums, slots, counts, forest.codes, forest.nbytes)


def _prune_on_shard(
    forest: IncrementalForest, trees: int, limits: Mapping[str, Scalar], bins: Bins | None
) -> Forest:
    """Return the first ``trees`` trees of a shard's forest, pruned; see ``prune_forest``."""
    rows = forest.rows
    grown: Forest = forest.release_forest()
    prune_forest(grown, trees, limits, rows, bins)
    return grown
