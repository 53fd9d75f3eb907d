"""The plainest evaluator, cross-validation by one fit per fold: what searchers are tested with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from dmls_core.errors import DataError
from dmls_core.search.evaluator import GiveUp
from dmls_core.search.interface import Problem
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar


class CrossValidation:
    """Fits and scores every fold; its steps are folds. See ``Evaluator``."""

    def suggested(self, space: Space) -> Space:
        """Return all of ``space``; see ``Evaluator.suggested``."""
        return space

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
        """Score one trial; see ``Evaluator.evaluate``."""
        started = time.monotonic()
        engine = problem.engine
        values: list[float] = []
        course: list[float] = []
        pruned = False
        try:
            for fold in problem.folds:
                if values and (pruned := give_up(len(values), course[-1])):
                    break
                if values and stop():
                    return None
                train, test = engine.place(fold.train), engine.place(fold.test)
                fitted = engine.fit(
                    problem.model,
                    {**space.fixed, **params},
                    problem.features[train],
                    problem.target[train],
                    n_classes=problem.n_classes,
                    seed=problem.seed,
                    threads=problem.threads,
                )
                prediction = fitted.predict(problem.features[test])
                values.append(problem.score(problem.truth[fold.test], prediction))
                course.append(float(np.mean(values)))
        except DataError as error:
            seconds = time.monotonic() - started
            return Trial(
                number,
                "failed",
                engine.name,
                params,
                seconds=seconds,
                message=str(error),
                course=tuple(course),
            )
        return Trial(
            number,
            "pruned" if pruned else "finished",
            engine.name,
            params,
            value=course[-1],
            values=tuple(values),
            seconds=time.monotonic() - started,
            message=f"given up after {len(values)} of {len(problem.folds)} folds" if pruned else "",
            steps=len(values),
            course=tuple(course),
        )
