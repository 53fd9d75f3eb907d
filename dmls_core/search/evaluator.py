"""How one trial is scored, whatever chose its hyperparameters and whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dmls_core.search.interface import Problem
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

GiveUp = Callable[[int, float], bool]
"""(steps taken, score so far) -> whether to give the trial up."""


class Evaluator(Protocol):
    """Scores trials of one model in growing steps: folds, trees or rounds."""

    def suggested(self, space: Space) -> Space:
        """Return the part of ``space`` that is to be suggested; the evaluator chooses the rest itself."""
        ...

    def evaluate(
        self,
        problem: Problem,
        space: Space,
        number: int,
        params: Mapping[str, Scalar],
        *,
        give_up: GiveUp,
        stop: Callable[[], bool],
    ) -> Trial | None:
        """Score one trial.

        Args:
            problem: what to score it on.
            space: the whole space.
            number: the trial's number.
            params: what was suggested.
            give_up: asked after each step but the last; the trial is ``pruned`` once it says so.
            stop: asked between steps.

        Returns:
            The trial, with every searched hyperparameter in its ``params``; ``None`` where ``stop`` said so.
        """
        ...
