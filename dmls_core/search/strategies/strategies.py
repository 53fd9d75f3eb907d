"""Strategies of ``[search] strategy``: the sampler and the pruner of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dmls_core.models.engines import BoostingEngine, ForestEngine
from dmls_core.search.boosting.objective import BoostingObjective
from dmls_core.search.boosting.shrinkage import resolve
from dmls_core.search.forest.objective import ForestObjective
from dmls_core.search.objective import CrossValidation

if TYPE_CHECKING:
    from dmls_core.search.objective import Objective
    from dmls_core.search.task import SearchTask, Space
    from dmls_core.spec.definitions import Scalar

Strategy = Literal["auto", "tpe", "random", "grid", "halving", "cma-es"]
Sampler = Literal["tpe", "random", "grid", "cma-es"]
Pruner = Literal["none", "halving"]


@dataclass(frozen=True, slots=True)
class SearchStrategy:
    """A sampler, and a pruner: Optuna's successive halving, or none.

    With ``portfolio``, the first trials are those of the model's portfolio.
    """

    sampler: Sampler
    pruner: Pruner = "none"
    portfolio: bool = False


FOREST_STRATEGIES: dict[Strategy, SearchStrategy] = {
    "auto": SearchStrategy("tpe"),
    "tpe": SearchStrategy("tpe"),
    "random": SearchStrategy("random"),
    "grid": SearchStrategy("grid"),
    "halving": SearchStrategy("random"),
    "cma-es": SearchStrategy("cma-es"),
}
"""Strategies of forests, whose objective prunes configurations itself, rung by rung."""

STRATEGIES: dict[Strategy, SearchStrategy] = {
    "auto": SearchStrategy("tpe", "halving", portfolio=True),
    "tpe": SearchStrategy("tpe", "halving"),
    "random": SearchStrategy("random", "halving"),
    "grid": SearchStrategy("grid"),
    "halving": SearchStrategy("random", "halving"),
    "cma-es": SearchStrategy("cma-es"),
}
"""Strategies of other models. A grid is scored in full, and CMA-ES learns from complete trials only."""


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


def make_candidate(
    strategy: Strategy,
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
        return ModelCandidate(ForestObjective(task, space, n_trials), FOREST_STRATEGIES[strategy])
    space, speedup = resolve(space, len(task.truth), task.n_classes, task.model.family)
    objective = (
        BoostingObjective(task, space, speedup)
        if isinstance(task.engine, BoostingEngine)
        else CrossValidation(task, space)
    )
    chosen, suggested, first = STRATEGIES[strategy], objective.suggested, {}
    if chosen.portfolio and earlier and suggested.contains(earlier):
        first = {name: earlier[name] for name in suggested.searched}
    return ModelCandidate(objective, chosen, first)
