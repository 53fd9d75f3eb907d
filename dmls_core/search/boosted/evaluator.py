"""Scores a trial of boosted trees in growing steps: rounds on the first fold, then the other folds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from dmls_core.errors import DataError
from dmls_core.models.engines import Growing, effective
from dmls_core.search.boosted.bins import BinnedFolds
from dmls_core.search.boosted.curve import Curve, loss_share
from dmls_core.search.boosted.rounds import ROUNDS, compared, grown_enough, readings
from dmls_core.search.evaluator import GiveUp
from dmls_core.search.interface import Problem
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

EARLY_STEPS = 2
"""Steps on the first fold before it is grown to the end."""


class _StoppedError(Exception):
    """The search was stopped within a trial."""


class BoostedEvaluator:
    """Reads ``n_estimators`` from boosters that grow; see ``Evaluator``.

    A trial's first two steps are the first fold's booster after few and after more rounds; then follow the
    first fold grown to the end, and each further fold. The first fold decides how far the others are grown.
    """

    def __init__(self) -> None:
        self._binned = BinnedFolds()

    def suggested(self, space: Space) -> Space:
        """Return ``space`` without ``n_estimators``; see ``Evaluator.suggested``."""
        searched = {name: wanted for name, wanted in space.searched.items() if name != ROUNDS}
        return Space(searched, space.fixed)

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
        read = readings(problem.model, space)
        curve = Curve(read, problem)
        course: list[float] = []
        steps = EARLY_STEPS + len(problem.folds)
        engine = problem.engine.name
        pruned = False
        try:
            for _ in self._steps(problem, {**space.fixed, **params}, read, curve, stop):
                course.append(curve.compared())
                if len(course) < steps and (pruned := give_up(len(course), course[-1])):
                    break
        except _StoppedError:
            return None
        except DataError as error:
            return Trial(
                number,
                "failed",
                engine,
                params,
                seconds=time.monotonic() - started,
                message=str(error),
                course=tuple(course),
            )
        searched = ROUNDS in space.searched
        return Trial(
            number,
            "pruned" if pruned else "finished",
            engine,
            {**params, ROUNDS: curve.chosen()} if searched else params,
            value=curve.score(),
            values=curve.at_best(),
            seconds=time.monotonic() - started,
            message=f"given up after {curve.reached()}" if pruned else "",
            steps=len(course),
            surface=curve.surface(ROUNDS) if searched else None,
            course=tuple(course),
        )

    def _steps(
        self,
        problem: Problem,
        settings: dict[str, Scalar],
        read: tuple[int, ...],
        curve: Curve,
        stop: Callable[[], bool],
    ) -> Iterator[None]:
        """Grow and score step by step; ``curve`` holds what was found."""
        rate = float(effective(problem.model, problem.engine.name, settings)["learning_rate"])
        last = read[-1]
        targets = (*compared(rate, last), last)
        # Between values that ``n_estimators`` may take, growing stops at the last one: it is compared there.
        ahead = deque(sorted({*read, *(target for target in targets if target < read[0])}))
        grown: list[int] = []
        growing = self._start(problem, 0, settings)
        for target in targets:
            while ahead and ahead[0] <= target:
                rounds = ahead.popleft()
                self._score(problem, 0, growing, rounds, curve, stop)
                if rounds in read:
                    grown.append(rounds)
                    if grown_enough(rounds, curve.earliest(), rate):
                        ahead.clear()
            yield
        for fold in range(1, len(problem.folds)):
            growing = self._start(problem, fold, settings)
            for rounds in grown:
                self._score(problem, fold, growing, rounds, curve, stop)
            yield

    def _start(self, problem: Problem, fold: int, settings: Mapping[str, Scalar]) -> Growing:
        return self._binned.get(problem, fold, settings).start(settings)

    def _score(
        self,
        problem: Problem,
        fold: int,
        growing: Growing,
        rounds: int,
        curve: Curve,
        stop: Callable[[], bool],
    ) -> None:
        if stop():
            raise _StoppedError
        truth = problem.truth[problem.folds[fold].test]
        prediction = growing.grow(rounds)
        curve.add(fold, rounds, problem.score(truth, prediction), loss_share(truth, prediction))
