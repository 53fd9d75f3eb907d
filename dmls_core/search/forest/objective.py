"""Score configurations of forests: one large forest also yields the scores of all smaller ones."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.models.cluster import ShardedMatrix
from dmls_core.models.engines import Fitted, GrowingForestEngine
from dmls_core.models.engines.base import useful_threads
from dmls_core.search.forest.growing import BlockForest, IncrementalForest
from dmls_core.search.forest.halving import (
    HalvingObjective,
    Promotion,
    Rung,
    SuccessiveHalving,
    converged,
    extrapolate,
    first_rung_trees,
    max_survivors,
    standard_error,
)
from dmls_core.search.forest.scoring import ScoringData, ScoringSplit, prepare_scoring
from dmls_core.search.forest.sharded_forest import ForestShards, ShardedForest, prepare_shards
from dmls_core.search.forest.space import TREES, PartitionedSpace, partition_space
from dmls_core.search.forest.trees import best_limits, prune_forest
from dmls_core.search.objective import ShouldPrune
from dmls_core.search.task import SearchTask, Space
from dmls_core.search.trial import State, Surface, Trial
from dmls_core.spec.definitions import NONE, Scalar, space_size

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
        self._forests: list[GrownForest] = []
        # Sizes that its forests went through: the blocks of a ``BlockForest`` depend on them.
        self._stages: list[int] = []
        generator = np.random.default_rng(task.seed)
        self._groups = [generator.permutation(len(split.truth)) % GROUPS for split in data.splits]

    @property
    def forests(self) -> list[GrownForest]:
        """Its forests; freed forests grow again with the same trees."""
        if not self._forests:
            self._forests = [
                _start_forest(self._task, self._parts, split, self.params) for split in self._data.splits
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
        """Free the memory of its forests, but not their scores."""
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
        scores = [
            forest.scores_without(best, groups, GROUPS)
            for forest, groups in zip(self.forests, self._groups, strict=True)
        ]
        mean: NDArray[np.float64] = np.mean(scores, axis=0)
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


GrownForest = IncrementalForest | BlockForest | ShardedForest


def _start_forest(
    task: SearchTask, parts: PartitionedSpace, split: ScoringSplit, params: dict[str, Scalar]
) -> GrownForest:
    """Return a forest without trees: on a cluster, of scikit-learn, or of another engine."""
    if isinstance(split.features, ForestShards):
        return ShardedForest(task, parts, split, params)
    threads = useful_threads(task.features, task.threads)
    forest_class = IncrementalForest if isinstance(task.engine, GrowingForestEngine) else BlockForest
    return forest_class(task, parts, split, params, threads=threads)


FIRST_RUNG_BYTES = 256 * 2**20
"""Memory for the forests of the first rung that may be promoted; others are grown again if promoted."""

GROWN_BYTES = 2 * 2**30
"""Memory for the forests of later rungs; beyond it, the worst configurations are freed and grown again."""

_SYNONYMS: Mapping[tuple[str, Scalar], Scalar] = {("criterion", "log_loss"): "entropy"}
"""Values of hyperparameters that scikit-learn treats as another value."""


class ForestObjective(HalvingObjective):
    """Grows one forest for each structural configuration; see ``Objective``.

    ``evaluate`` grows the first rung, and synchronous successive halving promotes the best configurations.
    The score of each number of trees, and of each pruning of them, is read from the same forest.
    """

    def __init__(self, task: SearchTask, space: Space, n_trials: int) -> None:
        super().__init__(task, space)
        self._parts = partition_space(task, space)
        self.suggested = self._parts.structural
        size = space_size(self.suggested.searched)
        self.exhaustive = size is not None and size <= n_trials
        configurations = n_trials if size is None else min(size, n_trials)
        sizes = self._parts.sizes
        first = first_rung_trees(sizes[-1], configurations, len(task.truth))
        self.halving = SuccessiveHalving(sizes, first, configurations, task.sign)
        self._data: ScoringData | None = None
        self._held: dict[int, Configuration] = {}

    def evaluate(
        self,
        number: int,
        params: Mapping[str, Scalar],
        *,
        should_prune: ShouldPrune,  # noqa: ARG002 - successive halving prunes
        stop: Callable[[], bool],  # noqa: ARG002 - the first rung is short
    ) -> Trial | None:
        """Grow the first trees of a configuration; see ``Objective.evaluate``."""
        configuration = self._configuration(number, dict(params))
        trees = self.halving.first_trees
        try:
            configuration.grow(trees)
        except DataError as error:
            return configuration.failed(error)
        self._held[number] = configuration
        room = max_survivors(self.halving.configurations)
        for one in self._beyond(room, FIRST_RUNG_BYTES):
            del self._held[one.number]
        return configuration.trial("pruned", f"pruned after {trees} trees")

    def promote(self, promotion: Promotion) -> Rung:
        """Grow a configuration to the next rung; see ``HalvingObjective.promote``."""
        first = promotion.first
        self._held = {number: one for number, one in self._held.items() if number in promotion.survivors}
        configuration = self._held.get(first.number)
        if configuration is None:
            structural = {name: first.params[name] for name in self.suggested.searched}
            configuration = self._configuration(first.number, structural)
            configuration.seconds = first.seconds
            self._held[first.number] = configuration
        # Another worker may have grown rungs since this one held the forest: all are scored, in their order.
        for trees in (*promotion.path, promotion.trees):
            configuration.grow(trees)
        rung = configuration.rung()
        for one in self._beyond(len(self._held), GROWN_BYTES):
            one.free()
        return rung

    def held(self) -> frozenset[int]:
        """Return the numbers of the configurations whose forests are in memory."""
        return frozenset(self._held)

    def identity(self, params: Mapping[str, Scalar]) -> str:
        """Return a text that is equal for configurations that are the same to the engine."""
        asked = {name: params[name] for name in self.suggested.searched}
        asked = {name: _SYNONYMS.get((name, value), value) for name, value in asked.items()}
        settings = self.task.engine.effective(self.task.model, self.suggested.fixed | asked)
        if self.task.engine.device == "cpu":
            settings["max_features"] = _columns_per_split(
                settings["max_features"], self.task.features.shape[1]
            )
        return json.dumps(settings, sort_keys=True)

    def fitted(self, best: Trial) -> Fitted | None:
        """Return the best configuration's forest, pruned to the best setting.

        A worker that does not hold the forest grows the same one again. Forests scored on folds have not seen
        all rows, and those of a ``BlockForest`` are not kept: they yield ``None``.
        """
        data = self._scoring_data()
        task, parts = self.task, self._parts
        engine = task.engine
        if not data.out_of_bag or not isinstance(engine, GrowingForestEngine):
            return None
        settings = engine.effective(task.model, {**self.space.fixed, **best.params})
        trees = int(settings[TREES])
        split = data.splits[0]
        held = self._held.get(best.number)
        grown = held.forests[0] if held and held.trees >= trees else None
        limits = {name: best.params[name] for name in parts.axes}
        structural = {name: best.params[name] for name in self.suggested.searched}
        forest: Any
        if isinstance(split.features, ForestShards):
            if not isinstance(grown, ShardedForest):
                grown = ShardedForest(task, parts, split, structural)
            forest = grown.release_forest(trees, limits)
        elif isinstance(grown, IncrementalForest):
            forest = grown.release_forest()
        else:
            asked = engine.effective(task.model, parts.growth_params(structural, trees))
            threads = useful_threads(task.features, task.threads)
            forest = engine.unfitted(task.model, asked, seed=task.seed, threads=threads)
            forest.fit(split.features, split.target, split.weights)
        self._held.clear()
        if not isinstance(split.features, ForestShards):
            prune_forest(forest, trees, limits, len(split.features), data.bins)
        forest.set_params(**engine.library_arguments(settings), warm_start=False)
        return engine.wrap(task.model, settings, forest, task.n_classes)

    def _scoring_data(self) -> ScoringData:
        if self._data is None:
            limits = len(self._parts.limits)
            if isinstance(self.task.features, ShardedMatrix):
                self._data = prepare_shards(self.task, limits)
            else:
                self._data = prepare_scoring(self.task, self.space, limits)
        return self._data

    def _configuration(self, number: int, params: dict[str, Scalar]) -> Configuration:
        return Configuration(self.task, self._parts, self._scoring_data(), number, params)

    def _beyond(self, room: int, limit: int) -> list[Configuration]:
        """Return the configurations beyond the best ``room`` or a memory limit, never the best one."""
        sign = self.task.sign
        ordered = sorted(
            self._held.values(), key=lambda one: (-sign * one.intermediate_values[-1], one.number)
        )
        beyond, size = [], 0
        for rank, one in enumerate(ordered):
            size += one.nbytes
            if rank >= room or (rank and size > limit):
                beyond.append(one)
        return beyond


def _columns_per_split(value: Scalar, columns: int) -> Scalar:
    """Return the number of ``columns`` that a split may choose from, for a value of ``max_features``."""
    if value == NONE:
        return columns
    if value in {"sqrt", "log2"}:
        return max(1, int(math.sqrt(columns) if value == "sqrt" else math.log2(columns)))
    return max(1, int(value * columns)) if isinstance(value, float) else value
