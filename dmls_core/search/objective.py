"""How one trial is scored, whatever chose its hyperparameters and whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dmls_core.search.space import Space
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

ShouldPrune = Callable[[int, float], bool]
"""(steps taken, score so far) -> whether to give the trial up."""


class Objective(Protocol):
    """Scores trials of one model in growing steps: folds, trees or rounds."""

    def suggested(self, space: Space) -> Space:
        """Return the part of ``space`` that is to be suggested; the evaluator chooses the rest itself."""
        ...

    def evaluate(
        self,
        task: SearchTask,
        space: Space,
        number: int,
        params: Mapping[str, Scalar],
        *,
        should_prune: ShouldPrune,
        stop: Callable[[], bool],
    ) -> Trial | None:
        """Score one trial.

        Args:
            task: what to score it on.
            space: the whole space.
            number: the trial's number.
            params: what was suggested.
            should_prune: asked after each step but the last; the trial is ``pruned`` once it says so.
            stop: asked between steps.

        Returns:
            The trial, with every searched hyperparameter in its ``params``; ``None`` where ``stop`` said so.
        """
        ...
