"""Plain Optuna: one fit per trial and fold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dmls_core.errors import DataError
from dmls_core.models.engines import effective
from dmls_core.search.grid import grid_points
from dmls_core.search.interface import Problem, SearchOutcome
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial, unbroken
from dmls_core.spec.definitions import Scalar

FAILURES = 10
"""So many failed trials in a row, and the search gives up."""


@dataclass(frozen=True, slots=True)
class PlainSearcher:
    """Cross-validates every trial that the strategy suggests; see ``Searcher``."""

    strategy: Literal["tpe", "random", "grid"]

    def run(
        self,
        problem: Problem,
        space: Space,
        n_trials: int,
        *,
        done: Sequence[Trial] = (),
        timeout: float | None = None,
        on_trial: Callable[[Trial], None],
        stop: Callable[[], bool],
    ) -> SearchOutcome:
        """Search; see ``Searcher.run``."""
        trials = unbroken(done)
        known = {_key(problem, space, trial.params): trial for trial in reversed(trials)}
        spent = sum(trial.seconds for trial in trials)
        for number, params in self._suggestions(problem, space, trials):
            finished = sum(trial.state == "finished" for trial in trials)
            if finished >= n_trials or _hopeless(trials, n_trials) or stop():
                break
            if timeout is not None and trials and spent >= timeout:
                break
            key = _key(problem, space, params)
            trial = _repeat(known[key], number, params) if key in known else None
            trial = trial or _cross_validate(problem, space, number, params, stop)
            if trial is None:
                break
            known.setdefault(key, trial)
            spent += trial.seconds
            trials.append(trial)
            on_trial(trial)
        return SearchOutcome.of(problem, space, trials)

    def _suggestions(
        self, problem: Problem, space: Space, trials: list[Trial]
    ) -> Iterable[tuple[int, dict[str, Scalar]]]:
        """Yield the next trial's number and parameters; ``trials`` grows between two steps."""
        if not space.searched:
            return enumerate([{}] if not trials else [], start=len(trials))
        if self.strategy == "grid":
            return _skip(enumerate(grid_points(space, problem.seed)), len(trials))
        from dmls_core.search.study import StudySuggestions

        return StudySuggestions(self.strategy, problem, space, trials)


def _skip(
    items: Iterable[tuple[int, dict[str, Scalar]]], count: int
) -> Iterator[tuple[int, dict[str, Scalar]]]:
    return (item for item in items if item[0] >= count)


def _hopeless(trials: list[Trial], n_trials: int) -> bool:
    last = trials[-FAILURES:]
    failed = sum(trial.state == "failed" for trial in trials)
    return failed > n_trials or (len(last) == FAILURES and all(trial.state == "failed" for trial in last))


def _key(problem: Problem, space: Space, params: Mapping[str, Scalar]) -> str:
    """Return the text that is the same for hyperparameters that the engine treats as the same."""
    merged = effective(problem.model, problem.engine.name, {**space.fixed, **params})
    return json.dumps(merged, sort_keys=True)


def _repeat(first: Trial, number: int, params: dict[str, Scalar]) -> Trial:
    return Trial(
        number=number,
        state=first.state,
        engine=first.engine,
        params=params,
        value=first.value,
        values=first.values,
        same_as=first.number if first.same_as is None else first.same_as,
        message=first.message,
    )


def _cross_validate(
    problem: Problem, space: Space, number: int, params: dict[str, Scalar], stop: Callable[[], bool]
) -> Trial | None:
    """Fit and score every fold; ``None`` where ``stop`` said so before the last."""
    started = time.monotonic()
    engine = problem.engine
    values: list[float] = []
    try:
        for fold in problem.folds:
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
            values.append(problem.score(problem.truth[fold.test], fitted.predict(problem.features[test])))
    except DataError as error:
        seconds = time.monotonic() - started
        return Trial(number, "failed", engine.name, params, seconds=seconds, message=str(error))
    return Trial(
        number,
        "finished",
        engine.name,
        params,
        value=float(np.mean(values)),
        values=tuple(values),
        seconds=time.monotonic() - started,
    )
