"""The objective: how one trial is scored, whichever sampler suggested it and whichever worker runs it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dmls_core.search.space import Space
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from dmls_core.models.engines import Fitted
    from dmls_core.search.forest.halving import Promotion, Rung, SuccessiveHalving

REDUCTION = 3
"""Successive halving keeps one of so many trials at each step."""

ShouldPrune = Callable[[int, float], bool]
"""(steps so far, score so far) -> whether to prune the trial."""


class Objective(ABC):
    """Scores trials of one model in steps: folds, trees or rounds.

    Attributes:
        task: data and metric.
        space: the whole space.
        suggested: the part of it that a sampler suggests; the objective chooses the rest by itself.
        exhaustive: whether every point of ``suggested`` is tried, whatever the sampler.
    """

    def __init__(self, task: SearchTask, space: Space) -> None:
        self.task = task
        self.space = space
        self.suggested = space
        self.exhaustive = False

    @abstractmethod
    def evaluate(
        self,
        number: int,
        params: Mapping[str, Scalar],
        *,
        should_prune: ShouldPrune,
        stop: Callable[[], bool],
    ) -> Trial | None:
        """Score one trial.

        Args:
            number: the trial's number.
            params: the suggestion.
            should_prune: called after each step but the last; once it returns ``True``, the trial is pruned.
            stop: called between steps.

        Returns:
            The trial, with every searched hyperparameter in its ``params``; ``None`` if ``stop`` returned
            ``True``.
        """

    def identity(self, params: Mapping[str, Scalar]) -> str:
        """Return a text that is equal for suggestions that the engine treats as the same."""
        return json.dumps(self._effective(params), sort_keys=True)

    def fitted(self, _best: Trial) -> Fitted | None:
        """Return the model of the best trial if the search has grown it on all rows, else ``None``."""
        return None

    def _effective(self, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
        asked = {name: params[name] for name in self.suggested.searched}
        return self.task.engine.effective(self.task.model, {**self.space.fixed, **asked})


class HalvingObjective(Objective):
    """An objective whose ``evaluate`` is the first rung of synchronous successive halving.

    Attributes:
        halving: decides which trials go on to the next rung.
    """

    halving: SuccessiveHalving

    @abstractmethod
    def promote(self, promotion: Promotion) -> Rung:
        """Take a trial to its next rung.

        Raises:
            DataError: the metric is undefined for the rows.
        """

    @abstractmethod
    def held(self) -> frozenset[int]:
        """Return the numbers of the trials that this worker can promote without repeating earlier rungs."""
