"""Score configurations of forests: one large forest also yields the scores of all smaller ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from dmls_core.errors import DataError
from dmls_core.search.forest.halving import (
    Promotion,
    Rung,
    SuccessiveHalving,
    first_rung_trees,
    max_survivors,
)
from dmls_core.search.forest.space import TREES, partition_space
from dmls_core.search.objective import HalvingObjective, ShouldPrune
from dmls_core.search.space import Space
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import NONE, Scalar
from dmls_core.spec.hyperparameters import space_size

if TYPE_CHECKING:
    from dmls_core.models.engines import Fitted, GrowingForestEngine
    from dmls_core.search.forest.configuration import Configuration
    from dmls_core.search.forest.scoring import ScoringData

FIRST_RUNG_BYTES = 256 * 2**20
"""Memory for the forests of the first rung that may be promoted; others are grown again if promoted."""

GROWN_BYTES = 2 * 2**30
"""Memory for the forests of later rungs; beyond it, the worst configurations are freed and grown again."""

SYNONYMS: Mapping[tuple[str, Scalar], Scalar] = {("criterion", "log_loss"): "entropy"}
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
        return configuration.trial("pruned", f"the first {trees} trees")

    def promote(self, promotion: Promotion) -> Rung:
        """Grow a configuration to the next rung; see ``HalvingObjective.promote``."""
        first = promotion.first
        self._held = {number: one for number, one in self._held.items() if number in promotion.survivors}
        configuration = self._held.get(first.number)
        if configuration is None:
            structural = {name: first.params[name] for name in self.suggested.searched}
            configuration = self._configuration(first.number, structural)
            configuration.seconds = first.seconds
            for trees in promotion.path:
                configuration.grow(trees)
            self._held[first.number] = configuration
        configuration.grow(promotion.trees)
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
        asked = {name: SYNONYMS.get((name, value), value) for name, value in asked.items()}
        found = self.task.engine.effective(self.task.model, self.suggested.fixed | asked)
        if self.task.engine.device == "cpu":
            found["max_features"] = columns_per_split(found["max_features"], self.task.features.shape[1])
        return json.dumps(found, sort_keys=True)

    def fitted(self, best: Trial) -> Fitted | None:
        """Return the best configuration's forest, pruned to the best setting.

        A worker that does not hold the forest grows the same one again. Forests scored on folds have not seen
        all rows: they yield ``None``.
        """
        data = self._scoring_data()
        if not data.out_of_bag:
            return None
        from dmls_core.models.engines.base import useful_threads
        from dmls_core.search.forest.incremental_forest import IncrementalForest
        from dmls_core.search.forest.tree_pruning import prune_forest

        task, parts = self.task, self._parts
        engine = cast("GrowingForestEngine", task.engine)
        settings = engine.effective(task.model, {**self.space.fixed, **best.params})
        trees = int(settings[TREES])
        split = data.splits[0]
        held = self._held.get(best.number)
        grown = held.forests[0] if held and held.trees >= trees else None
        forest: Any
        if isinstance(grown, IncrementalForest):
            forest = grown.release_forest()
        else:
            structural = {name: best.params[name] for name in self.suggested.searched}
            asked = engine.effective(task.model, parts.growth_params(structural, trees))
            threads = useful_threads(task.features, task.threads)
            forest = engine.unfitted(task.model, asked, seed=task.seed, threads=threads)
            forest.fit(split.features, split.target)
        self._held.clear()
        limits = {name: best.params[name] for name in parts.axes}
        prune_forest(forest, trees, limits, len(split.features), data.bins)
        forest.set_params(**engine.library_arguments(settings), warm_start=False)
        return engine.wrap(task.model, settings, forest, task.n_classes)

    def _scoring_data(self) -> ScoringData:
        if self._data is None:
            # Imported here, since it needs scikit-learn.
            from dmls_core.search.forest.scoring import prepare_scoring

            self._data = prepare_scoring(self.task, self.space, len(self._parts.limits))
        return self._data

    def _configuration(self, number: int, params: dict[str, Scalar]) -> Configuration:
        from dmls_core.search.forest.configuration import Configuration

        return Configuration(self.task, self._parts, self._scoring_data(), number, params)

    def _beyond(self, room: int, limit: int) -> list[Configuration]:
        """Return the configurations beyond the best ``room`` or a memory limit, never the best one."""
        sign = self.task.sign
        ordered = sorted(
            self._held.values(), key=lambda one: (-sign * one.intermediate_values[-1], one.number)
        )
        found, size = [], 0
        for place, one in enumerate(ordered):
            size += one.nbytes
            if place >= room or (place and size > limit):
                found.append(one)
        return found


def columns_per_split(value: Scalar, columns: int) -> Scalar:
    """Return the number of ``columns`` that a split may choose from, for a value of ``max_features``."""
    if value == NONE:
        return columns
    if value in {"sqrt", "log2"}:
        return max(1, int(math.sqrt(columns) if value == "sqrt" else math.log2(columns)))
    return max(1, int(value * columns)) if isinstance(value, float) else value
