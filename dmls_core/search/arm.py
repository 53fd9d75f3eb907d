"""A model in a search, with all that its trials need."""

from __future__ import annotations

from dataclasses import dataclass

from dmls_core.search.evaluator import Evaluator
from dmls_core.search.interface import Problem, Searcher
from dmls_core.search.nested import NestedForestSearcher
from dmls_core.search.nested.evaluator import NestedEvaluator
from dmls_core.search.plain import PlainSearcher
from dmls_core.search.space import Space
from dmls_core.search.strategies import Plan


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the models of a search that takes one trial at a time.

    Attributes:
        problem: what its trials are scored on.
        space: what is searched.
        plan: what suggests its trials and gives them up.
        evaluator: what scores them.
    """

    problem: Problem
    space: Space
    plan: Plan
    evaluator: Evaluator

    @property
    def model(self) -> str:
        """The model's name."""
        return self.problem.model.name

    @classmethod
    def of(cls, problem: Problem, space: Space, searcher: Searcher) -> Arm:
        """Take from a searcher how it chooses and scores single trials.

        Raises:
            TypeError: it is of a kind that does not do so.
        """
        match searcher:
            case PlainSearcher(plan=plan, evaluator=evaluator):
                return cls(problem, space, plan, evaluator)
            case NestedForestSearcher(plan=plan):
                # What the searcher itself drops rung by rung, each trial gives up by itself. A grid is scored
                # in full, and CMA-ES learns from such trials alone.
                pruned = plan.sampler in ("tpe", "random")
                plan = Plan(plan.sampler, "halving" if pruned else "none")
                return cls(problem, space, plan, NestedEvaluator(problem, space))
        raise TypeError(f"{type(searcher).__name__} has no trials of its own")
