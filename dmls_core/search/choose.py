"""Which searcher serves a strategy and a model."""

from __future__ import annotations

from typing import Literal

from dmls_core.models.engines import BoostingEngine, Engine, ForestEngine
from dmls_core.search.boosting import BoostingObjective
from dmls_core.search.cross_validation import CrossValidation
from dmls_core.search.forest import NestedForestSearcher
from dmls_core.search.sequential import SequentialSearcher
from dmls_core.search.strategies import SearchStrategy
from dmls_core.search.task import Searcher

Strategy = Literal["auto", "tpe", "random", "grid", "halving", "cma-es"]

PLANS: dict[Strategy, SearchStrategy] = {
    "auto": SearchStrategy("tpe"),
    "tpe": SearchStrategy("tpe"),
    "random": SearchStrategy("random"),
    "grid": SearchStrategy("grid"),
    "halving": SearchStrategy("random", "halving"),
    "cma-es": SearchStrategy("cma-es"),
}
"""Strategy -> how configurations of forests are chosen; what gives these up is the searcher's own."""

BOOSTED_PLANS: dict[Strategy, SearchStrategy] = PLANS | {
    "auto": SearchStrategy("tpe", "halving"),
    "tpe": SearchStrategy("tpe", "halving"),
    "random": SearchStrategy("random", "halving"),
}
"""The same for boosted trees, which are compared long before they are scored to the end. A grid is scored
in full, and CMA-ES learns from such trials alone."""


def choose_searcher(strategy: Strategy, engine: Engine) -> Searcher:
    """Return the searcher for the models of ``engine``.

    Args:
        strategy: the spec's: how trials are chosen. How they are scored depends on the engine's capabilities.
        engine: the engine that fits the models.
    """
    if isinstance(engine, ForestEngine):
        return NestedForestSearcher(PLANS[strategy])
    if isinstance(engine, BoostingEngine):
        return SequentialSearcher(BOOSTED_PLANS[strategy], BoostingObjective())
    return SequentialSearcher(BOOSTED_PLANS[strategy], CrossValidation())
