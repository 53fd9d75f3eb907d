"""The objective of a search scores trials; cross-validation is the objective that every engine supports."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dmls_core.errors import DataError
from dmls_core.search.task import SearchTask, Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from dmls_core.models.engines import Fitted

ShouldPrune = Callable[[int, float], bool]
"""(steps so far, score so far) -> whether to prune the trial."""


class Objective(ABC):
    """Scores trials of one model in steps: folds, trees or rounds.

    A sampler suggests the part ``suggested`` of the whole ``space``; the objective chooses the rest. With
    ``exhaustive``, every sampler tries every point of ``suggested``.
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
        """Score one trial; return it with every searched hyperparameter in its ``params``.

        ``should_prune`` is called after each step but the last; once it returns ``True``, the trial is
        pruned. ``stop`` is called between steps; once it returns ``True``, the result is ``None``.
        """

    def identity(self, params: Mapping[str, Scalar]) -> str:
        """Return a text that is equal for suggestions that are the same to the engine."""
        return json.dumps(self._effective(params), sort_keys=True)

    def refit_params(self, best: Trial) -> dict[str, Scalar]:
        """Return all hyperparameters of the model that is fitted for the best trial."""
        return {**self.space.fixed, **best.params}

    def fitted(self, _best: Trial) -> Fitted | None:
        """Return the model of the best trial if the search has grown it on all rows."""
        return None

    def _failed(
        self,
        number: int,
        params: Mapping[str, Scalar],
        started: float,
        intermediate_values: Sequence[float],
        error: DataError,
    ) -> Trial:
        """Return a failed trial; ``started`` is its start by ``time.monotonic``."""
        return Trial(
            number,
            "failed",
            self.task.engine.device,
            params,
            seconds=time.monotonic() - started,
            message=str(error),
            intermediate_values=tuple(intermediate_values),
        )

    def _effective(self, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
        asked = {name: params[name] for name in self.suggested.searched}
        return self.task.engine.effective(self.task.model, {**self.space.fixed, **asked})


class CrossValidation(Objective):
    """Fits and scores every fold; each fold is a step. See ``Objective``."""

    def evaluate(
        self,
        number: int,
        params: Mapping[str, Scalar],
        *,
        should_prune: ShouldPrune,
        stop: Callable[[], bool],
    ) -> Trial | None:
        """Score one trial; see ``Objective.evaluate``."""
        started = time.monotonic()
        task, space = self.task, self.space
        engine = task.engine
        values: list[float] = []
        intermediate_values: list[float] = []
        pruned = False
        try:
            for fold in task.folds:
                if values and (pruned := should_prune(len(values), intermediate_values[-1])):
                    break
                if values and stop():
                    return None
                fitted = task.fit({**space.fixed, **params}, fold.train)
                prediction = fitted.predict(task.features[engine.place(fold.test)])
                values.append(task.score_rows(fold.test, prediction))
                intermediate_values.append(float(np.mean(values)))
        except DataError as error:
            return self._failed(number, params, started, intermediate_values, error)
        return Trial(
            number,
            "pruned" if pruned else "complete",
            engine.device,
            params,
            value=intermediate_values[-1],
            values=tuple(values),
            seconds=time.monotonic() - started,
            message=f"pruned after {len(values)} of {len(task.folds)} folds" if pruned else "",
            steps=len(values),
            intermediate_values=tuple(intermediate_values),
        )
