"""Which searcher serves a strategy and a model."""

from __future__ import annotations

from typing import Literal

from dmls_core.search.boosted import BoostedEvaluator
from dmls_core.search.interface import Searcher
from dmls_core.search.nested import NestedForestSearcher
from dmls_core.search.plain import PlainSearcher
from dmls_core.search.strategies import Plan
from dmls_core.spec.definitions import ModelDefinition

Strategy = Literal["auto", "tpe", "random", "grid", "halving", "cma-es"]

PLANS: dict[Strategy, Plan] = {
    "auto": Plan("tpe"),
    "tpe": Plan("tpe"),
    "random": Plan("random"),
    "grid": Plan("grid"),
    "halving": Plan("random", "halving"),
    "cma-es": Plan("cma-es"),
}
"""Strategy -> how configurations of forests are chosen; what gives these up is the searcher's own."""

BOOSTED_PLANS: dict[Strategy, Plan] = PLANS | {
    "auto": Plan("tpe", "halving"),
    "tpe": Plan("tpe", "halving"),
    "random": Plan("random", "halving"),
}
"""The same for boosted trees, which are compared long before they are scored to the end. A grid is scored
in full, and CMA-ES learns from such trials alone."""

FORESTS = ("random-forest", "extra-trees")


def choose_searcher(strategy: Strategy, model: ModelDefinition) -> Searcher:
    """Return what searches ``model``, on whatever engine.

    Args:
        strategy: the spec's: how trials are chosen. How they are scored follows from the model.
        model: the model to search.
    """
    if model.family in FORESTS:
        return NestedForestSearcher(PLANS[strategy])
    return PlainSearcher(BOOSTED_PLANS[strategy], BoostedEvaluator())
