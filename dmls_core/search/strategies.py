"""Strategies of ``[search] strategy``: which sampler suggests trials, and what prunes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dmls_core.models.engines import BoostingEngine, ForestEngine
from dmls_core.search.boosting import BoostingObjective
from dmls_core.search.cross_validation import CrossValidation
from dmls_core.search.forest import ForestObjective

if TYPE_CHECKING:
    from dmls_core.search.objective import Objective
    from dmls_core.search.space import Space
    from dmls_core.search.task import SearchTask

Strategy = Literal["auto", "tpe", "random", "grid", "halving", "cma-es"]
Sampler = Literal["tpe", "random", "grid", "cma-es"]
Pruner = Literal["none", "halving"]


@dataclass(frozen=True, slots=True)
class SearchStrategy:
    """How trials are suggested and pruned.

    Attributes:
        sampler: suggests their hyperparameters.
        pruner: ``halving`` prunes by Optuna's successive halving; ``none`` runs every trial to its end.
    """

    sampler: Sampler
    pruner: Pruner = "none"


FOREST_STRATEGIES: dict[Strategy, SearchStrategy] = {
    "auto": SearchStrategy("tpe"),
    "tpe": SearchStrategy("tpe"),
    "random": SearchStrategy("random"),
    "grid": SearchStrategy("grid"),
    "halving": SearchStrategy("random"),
    "cma-es": SearchStrategy("cma-es"),
}
"""How configurations of forests are suggested; their objective prunes them, rung by rung."""

STRATEGIES: dict[Strategy, SearchStrategy] = {
    "auto": SearchStrategy("tpe", "halving"),
    "tpe": SearchStrategy("tpe", "halving"),
    "random": SearchStrategy("random", "halving"),
    "grid": SearchStrategy("grid"),
    "halving": SearchStrategy("random", "halving"),
    "cma-es": SearchStrategy("cma-es"),
}
"""The same for other models. A grid is scored in full, and CMA-ES learns from complete trials only."""


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """One of the models that a search compares.

    Attributes:
        objective: scores its trials.
        strategy: suggests and prunes them.
    """

    objective: Objective
    strategy: SearchStrategy

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


def make_candidate(strategy: Strategy, task: SearchTask, space: Space, n_trials: int) -> ModelCandidate:
    """Return a model as a search takes it.

    The engine's capabilities decide how its trials are scored: nested search of forests, boosters that grow
    round by round, or cross-validation with one fit per fold.

    Args:
        strategy: the spec's strategy: how trials are suggested.
        task: data and metric.
        space: the search space.
        n_trials: trials of the whole search.
    """
    if isinstance(task.engine, ForestEngine):
        return ModelCandidate(ForestObjective(task, space, n_trials), FOREST_STRATEGIES[strategy])
    objective = BoostingObjective if isinstance(task.engine, BoostingEngine) else CrossValidation
    return ModelCandidate(objective(task, space), STRATEGIES[strategy])
