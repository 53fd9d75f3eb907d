"""The models that a search compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dmls_core.models.engines import BoostingEngine, Engine, ForestEngine
from dmls_core.search.boosting.objective import BoostingObjective, without_rounds
from dmls_core.search.boosting.shrinkage import resolve
from dmls_core.search.forest.objective import ForestObjective
from dmls_core.search.forest.space import structural
from dmls_core.search.objective import CrossValidation
from dmls_core.search.samplers.strategy import SearchStrategy, load_strategy
from dmls_core.search.task import grid_size
from dmls_core.spec.definitions import space_size

if TYPE_CHECKING:
    from dmls_core.search.objective import Objective
    from dmls_core.search.task import SearchTask, Space
    from dmls_core.spec.definitions import Scalar


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """One of the models that a search compares, with its objective and strategy."""

    objective: Objective
    strategy: SearchStrategy
    warm_start: Mapping[str, Scalar] = field(default_factory=dict)
    """Hyperparameters of the first trial; empty for those of the strategy."""

    @property
    def task(self) -> SearchTask:
        """Data and metric."""
        return self.objective.task

    @property
    def space(self) -> Space:
        """The whole search space."""
        return self.objective.space

    @property
    def model(self) -> str:
        """The model's name."""
        return self.task.model.name

    @property
    def grid(self) -> bool:
        """Whether the points of a grid are tried, each once."""
        return self.strategy.grid or self.objective.exhaustive

    def exhausted(self, taken: int) -> bool:
        """Return whether ``taken`` trials of this model have tried everything that can be suggested."""
        suggested = self.objective.suggested
        if not suggested.searched:
            return taken > 0
        return self.grid and taken >= grid_size(suggested)


def expected_trials(models: Sequence[tuple[Engine, Space]], strategy: SearchStrategy, n_trials: int) -> int:
    """Return how many trials a search runs if nothing stops it.

    They are fewer than ``n_trials`` if no more can differ: one forest scores all its smaller sizes.
    """
    limits = [_most_trials(engine, space, strategy, alone=len(models) == 1) for engine, space in models]
    return min(n_trials, sum(n_trials if limit is None else limit for limit in limits))


def _most_trials(engine: Engine, space: Space, strategy: SearchStrategy, *, alone: bool) -> int | None:
    """Return how many different trials a model has; ``None`` if there is no limit."""
    forest = isinstance(engine, ForestEngine)
    suggested = structural(space, engine.device) if forest else space
    if isinstance(engine, BoostingEngine):
        suggested = without_rounds(space)
    if not suggested.searched:
        return 1
    if forest:
        # Successive halving of a single model starts its grid again.
        return None if alone else space_size(suggested.searched)
    return grid_size(suggested) if strategy.grid else None


def make_candidate(
    strategy: str,
    task: SearchTask,
    space: Space,
    n_trials: int,
    *,
    earlier: Mapping[str, Scalar] | None = None,
) -> ModelCandidate:
    """Return a model as a search takes it.

    The engine's capabilities decide how its trials are scored: nested search of forests, boosters that grow
    round by round, or cross-validation with one fit per fold. A strategy with a portfolio tries the
    hyperparameters of an ``earlier`` model first, if the space contains them.
    """
    if isinstance(task.engine, ForestEngine):
        return ModelCandidate(ForestObjective(task, space, n_trials), load_strategy(strategy))
    space, speedup = resolve(space, len(task.truth), task.n_classes, task.model.family)
    objective = (
        BoostingObjective(task, space, speedup)
        if isinstance(task.engine, BoostingEngine)
        else CrossValidation(task, space)
    )
    chosen, suggested, first = load_strategy(strategy), objective.suggested, {}
    if chosen.portfolio and earlier and suggested.contains(earlier):
        first = {name: earlier[name] for name in suggested.searched}
    return ModelCandidate(objective, chosen, first)
