"""A model in a search, with all that its trials need."""

from __future__ import annotations

from dataclasses import dataclass

from dmls_core.search.forest import NestedForestSearcher
from dmls_core.search.forest.objective import ForestObjective
from dmls_core.search.objective import Objective
from dmls_core.search.sequential import SequentialSearcher
from dmls_core.search.space import Space
from dmls_core.search.strategies import SearchStrategy
from dmls_core.search.task import Searcher, SearchTask


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """One of the models of a search that takes one trial at a time.

    Attributes:
        task: what its trials are scored on.
        space: what is searched.
        plan: what suggests its trials and gives them up.
        evaluator: what scores them.
    """

    task: SearchTask
    space: Space
    plan: SearchStrategy
    evaluator: Objective

    @property
    def model(self) -> str:
        """The model's name."""
        return self.task.model.name

    @classmethod
    def of(cls, task: SearchTask, space: Space, searcher: Searcher) -> ModelCandidate:
        """Take from a searcher how it chooses and scores single trials.

        Raises:
            TypeError: it is of a kind that does not do so.
        """
        match searcher:
            case SequentialSearcher(plan=plan, evaluator=evaluator):
                return cls(task, space, plan, evaluator)
            case NestedForestSearcher(plan=plan):
                # What the searcher itself drops rung by rung, each trial gives up by itself. A grid is scored
                # in full, and CMA-ES learns from such trials alone.
                pruned = plan.sampler in ("tpe", "random")
                plan = SearchStrategy(plan.sampler, "halving" if pruned else "none")
                return cls(task, space, plan, ForestObjective(task, space))
        raise TypeError(f"{type(searcher).__name__} has no trials of its own")
