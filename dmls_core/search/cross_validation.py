"""Score trials by cross-validation with one fit per fold, which works with every engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from dmls_core.errors import DataError
from dmls_core.search.objective import Objective, ShouldPrune
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar


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
                train, test = engine.place(fold.train), engine.place(fold.test)
                fitted = engine.fit(
                    task.model,
                    {**space.fixed, **params},
                    task.features[train],
                    task.target[train],
                    n_classes=task.n_classes,
                    seed=task.seed,
                    threads=task.threads,
                )
                prediction = fitted.predict(task.features[test])
                values.append(task.score(task.truth[fold.test], prediction))
                intermediate_values.append(float(np.mean(values)))
        except DataError as error:
            seconds = time.monotonic() - started
            return Trial(
                number,
                "failed",
                engine.device,
                params,
                seconds=seconds,
                message=str(error),
                intermediate_values=tuple(intermediate_values),
            )
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
