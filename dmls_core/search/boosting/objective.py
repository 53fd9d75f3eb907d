"""Boosted trees: boosters grow step by step, and also yield the scores of all smaller numbers of rounds."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.models.engines import Binned, BoostingEngine, Growing
from dmls_core.search.boosting.learning_curve import (
    ROUNDS,
    RUNGS,
    LearningCurve,
    has_plateaued,
    loss_share,
    rung_rounds,
    scored_rounds,
)
from dmls_core.search.boosting.shrinkage import LEARNING_RATE, Shrinkage
from dmls_core.search.objective import Objective, ShouldPrune
from dmls_core.search.task import SearchTask, Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Range, Scalar

MAX_FOLDS = 6
"""Maximum number of binned folds in memory. Each takes about a byte per cell, a quarter of the matrix."""


def bin_rows(
    task: SearchTask, params: Mapping[str, Scalar], train: NDArray[np.integer], test: NDArray[np.integer]
) -> Binned:
    """Bin the training rows ``train`` of a boosted model, and likewise the rows ``test`` to be scored."""
    engine = cast("BoostingEngine", task.engine)
    weighing = task.weighing(train)
    train, test = engine.place(train), engine.place(test)
    return engine.bin(
        task.model,
        params,
        task.features.take(train, axis=0),
        task.target[train],
        task.features.take(test, axis=0),
        n_classes=task.n_classes,
        seed=task.seed,
        threads=task.threads,
        **weighing,
    )


class BinnedFolds:
    """Bins each fold at its first use; keeps the ``MAX_FOLDS`` most recently used ones."""

    def __init__(self, task: SearchTask) -> None:
        self._task = task
        self._folds: OrderedDict[tuple[Scalar, ...], Binned] = OrderedDict()

    def get(self, number: int, params: Mapping[str, Scalar]) -> Binned:
        """Return the fold ``number`` in the bins of ``params``."""
        task = self._task
        engine = cast("BoostingEngine", task.engine)
        key = (number, *engine.binning(task.model, params))
        if key not in self._folds:
            while len(self._folds) >= MAX_FOLDS:
                self._folds.popitem(last=False)
            fold = task.folds[number]
            self._folds[key] = bin_rows(task, params, fold.train, fold.test)
        self._folds.move_to_end(key)
        return self._folds[key]


class _StoppedError(Exception):
    """The search was stopped during a trial."""


def without_rounds(space: Space) -> Space:
    """Return the part of a space that needs boosters for each of its values."""
    return Space({name: values for name, values in space.searched.items() if name != ROUNDS}, space.fixed)


class BoostingObjective(Objective):
    """Scores all values of ``n_estimators`` on growing boosters; see ``Objective``.

    The first ``RUNGS`` steps score the first fold's booster after few and after more rounds. The next steps
    are the first fold grown to the end, and each further fold. The first fold decides how far the others
    grow.

    With ``speedup``, boosters have this many times the learning rate of the model, if it has at least as many
    rounds. All rounds are those of the model: a booster has in proportion fewer. See ``shrinkage.py``.
    """

    def __init__(self, task: SearchTask, space: Space, speedup: int = 1) -> None:
        super().__init__(task, space)
        # A booster of less than one round would have the score of another model.
        self._speedup = min(speedup, scored_rounds(task.model, space)[0])
        self.suggested = without_rounds(space)
        self._binned = BinnedFolds(task)

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
        read = scored_rounds(task.model, space)
        curve = LearningCurve(read, task)
        intermediate_values: list[float] = []
        steps = RUNGS + len(task.folds)
        engine = task.engine.device
        pruned = False
        try:
            for _ in self._steps({**space.fixed, **params}, read, curve, stop):
                intermediate_values.append(curve.tie_broken_score())
                if len(intermediate_values) < steps and (
                    pruned := should_prune(len(intermediate_values), intermediate_values[-1])
                ):
                    break
        except _StoppedError:
            return None
        except DataError as error:
            return self._failed(number, params, started, intermediate_values, error)
        searched = ROUNDS in space.searched
        return Trial(
            number,
            "pruned" if pruned else "complete",
            engine,
            {**params, ROUNDS: curve.n_estimators()} if searched else params,
            value=curve.score(),
            values=curve.at_best(),
            seconds=time.monotonic() - started,
            message=f"pruned after {curve.reached()}" if pruned else "",
            steps=len(intermediate_values),
            surface=curve.surface(ROUNDS) if searched else None,
            intermediate_values=tuple(intermediate_values),
        )

    def refit_params(self, best: Trial) -> dict[str, Scalar]:
        """Return those of a model with the last rate if the rate is automatic and the rounds are a range."""
        params = super().refit_params(best)
        rounds_space = self.space.searched.get(ROUNDS)
        if self._speedup == 1 or not isinstance(rounds_space, Range):
            return params
        if self.task.engine.effective(self.task.model, params).get("boosting_type") == "dart":
            return params  # it drops trees in each round: more and slower ones are another model
        rate, rounds = self._rate(params), int(params[ROUNDS])
        last = Shrinkage.of(len(self.task.truth), self.task.n_classes, self.task.model.family).last
        read = scored_rounds(self.task.model, self.space)
        other = min(max(int(rounds * rate / last), read[0]), read[-1])
        other -= (other - rounds) % int(rounds_space.step or 1)
        if other == rounds or (other < rounds and rate >= last):
            return params
        return {**params, ROUNDS: other, LEARNING_RATE: round(rate * rounds / other, 6)}

    def _steps(
        self,
        settings: dict[str, Scalar],
        read: tuple[int, ...],
        curve: LearningCurve,
        stop: Callable[[], bool],
    ) -> Iterator[None]:
        """Grow and score step by step; ``curve`` collects the scores."""
        task = self.task
        rate = self._rate(settings)
        last = read[-1]
        targets = (*rung_rounds(rate, last), last)
        # A rung between two values of ``n_estimators`` is scored at the lower one: growing stops there.
        ahead = deque(sorted({*read, *(target for target in targets if target < read[0])}))
        grown: list[int] = []
        growing = self._start(0, settings)
        for target in targets:
            while ahead and ahead[0] <= target:
                rounds = ahead.popleft()
                self._score(0, growing, rounds, curve, stop)
                if rounds in read:
                    grown.append(rounds)
                    if has_plateaued(rounds, curve.earliest(), rate):
                        ahead.clear()
            yield
        for fold in range(1, len(task.folds)):
            del growing  # with its histograms, before the next rows are binned
            growing = self._start(fold, settings)
            for rounds in grown:
                self._score(fold, growing, rounds, curve, stop)
            yield

    def _start(self, fold: int, settings: Mapping[str, Scalar]) -> Growing:
        rate = min(1.0, self._speedup * self._rate(settings))
        return self._binned.get(fold, settings).start({**settings, LEARNING_RATE: rate})

    def _rate(self, settings: Mapping[str, Scalar]) -> float:
        return float(self.task.engine.effective(self.task.model, settings)[LEARNING_RATE])

    def _score(
        self, fold: int, growing: Growing, rounds: int, curve: LearningCurve, stop: Callable[[], bool]
    ) -> None:
        if stop():
            raise _StoppedError
        task, rows = self.task, self.task.folds[fold].test
        prediction = growing.grow(max(1, round(rounds / self._speedup)))  # 1: of an early rung
        share = loss_share(task.truth[rows], prediction, None if task.weights is None else task.weights[rows])
        curve.add(fold, rounds, task.score_rows(rows, prediction), share)
