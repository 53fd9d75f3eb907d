"""The search in one process: suggest, score, keep, again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dmls_core.search.callbacks import ShouldStop, never_stop
from dmls_core.search.grid import grid_points
from dmls_core.search.objective import Objective, ShouldPrune
from dmls_core.search.space import Space
from dmls_core.search.strategies import SearchStrategy
from dmls_core.search.task import SearchOutcome, SearchTask, Step, ignore_progress
from dmls_core.search.trial import Trial, contiguous_trials
from dmls_core.spec.definitions import Scalar

FAILURES = 10
"""So many failed trials in a row, and the search gives up."""


@dataclass(frozen=True, slots=True)
class SequentialSearcher:
    """Scores, one after the other, the trials that a strategy suggests; see ``Searcher``.

    Attributes:
        plan: what suggests trials and gives them up.
        evaluator: what scores them.
    """

    plan: SearchStrategy
    evaluator: Objective

    def run(
        self,
        task: SearchTask,
        space: Space,
        n_trials: int,
        *,
        done: Sequence[Trial] = (),
        timeout: float | None = None,
        enough: ShouldStop = never_stop,
        on_trial: Callable[[Trial], None],
        on_step: Callable[[Step], None] = ignore_progress,  # noqa: ARG002 - trials are all there is to count here
        stop: Callable[[], bool],
    ) -> SearchOutcome:
        """Search; see ``Searcher.run``."""
        trials = contiguous_trials(done)
        suggested = self.evaluator.suggested(space)
        known = {effective_key(task, space, suggested, trial.params): trial for trial in reversed(trials)}
        started = time.monotonic() - sum(trial.seconds for trial in trials)
        for number, params, should_prune in self._suggestions(task, suggested, trials):
            if len(trials) - _failed(trials) >= n_trials or _hopeless(trials, n_trials) or stop():
                break
            late = timeout is not None and time.monotonic() - started >= timeout
            if trials and (late or enough(trials)):
                break
            key = effective_key(task, space, suggested, params)
            trial = (
                repeat_of(known[key], number, params)
                if key in known
                else self.evaluator.evaluate(
                    task, space, number, params, should_prune=should_prune, stop=stop
                )
            )
            if trial is None:
                break
            known.setdefault(key, trial)
            trials.append(trial)
            on_trial(trial)
        return SearchOutcome.of(task, space, trials)

    def _suggestions(
        self, task: SearchTask, suggested: Space, trials: list[Trial]
    ) -> Iterable[tuple[int, dict[str, Scalar], ShouldPrune]]:
        """Yield the next trial's number, parameters and pruning; ``trials`` grows between two steps."""
        if not suggested.searched:
            return _never_given_up([{}], len(trials))
        if self.plan.sampler == "grid":
            return _never_given_up(grid_points(suggested, task.seed), len(trials))
        from dmls_core.search.study import StudySuggestions

        return StudySuggestions(self.plan, task, suggested, trials)


def _never_given_up(
    points: Iterable[dict[str, Scalar]], skip: int
) -> Iterator[tuple[int, dict[str, Scalar], ShouldPrune]]:
    for number, point in enumerate(points):
        if number >= skip:
            yield number, point, lambda _steps, _score: False


def _failed(trials: Iterable[Trial]) -> int:
    return sum(trial.state == "failed" for trial in trials)


def _hopeless(trials: list[Trial], n_trials: int) -> bool:
    return _failed(trials) > n_trials or _failed(trials[-FAILURES:]) == FAILURES


def effective_key(task: SearchTask, space: Space, suggested: Space, params: Mapping[str, Scalar]) -> str:
    """Return the text that is the same for suggestions that the engine treats as the same."""
    asked = {name: params[name] for name in suggested.searched}
    merged = task.engine.effective(task.model, {**space.fixed, **asked})
    return json.dumps(merged, sort_keys=True)


def repeat_of(first: Trial, number: int, params: dict[str, Scalar]) -> Trial:
    """Return the trial that has the hyperparameters of ``first`` again, and so its scores."""
    same_as = first.number if first.same_as is None else first.same_as
    return replace(first, number=number, params={**first.params, **params}, seconds=0.0, same_as=same_as)
