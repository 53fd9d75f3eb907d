"""What every search strategy is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.models.engines import Engine, Fitted
from dmls_core.search.callbacks import ShouldStop, never_stop
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Direction, ModelDefinition, Scalar

Score = Callable[[NDArray[Any], NDArray[Any]], float]
"""(truth, prediction) -> score; raises ``DataError`` where the metric is not defined for these rows."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows to fit on and rows to score on, as positions in the task's arrays."""

    train: NDArray[Any]
    test: NDArray[Any]


@dataclass(frozen=True, slots=True)
class SearchTask:
    """What a trial is scored on.

    Attributes:
        model: the model searched.
        engine: what fits it.
        features: (n_rows, n_features) float32 on the engine's device: the training rows only.
        target: (n_rows,) on the device, as ``Engine.fit`` takes it.
        truth: the same target in the CPU's memory.
        n_classes: 0 for a regression.
        folds: the folds of the cross-validation.
        score: the metric.
        direction: whether more of it is better.
        seed: seed of everything random.
        threads: CPU threads to use at most.
    """

    model: ModelDefinition
    engine: Engine
    features: Any
    target: Any
    truth: NDArray[Any]
    n_classes: int
    folds: tuple[Fold, ...]
    score: Score
    direction: Direction
    seed: int
    threads: int

    def better(self, one: float, other: float) -> bool:
        """Say whether the score ``one`` beats ``other``."""
        return one > other if self.direction == "maximize" else one < other


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What a search found.

    Attributes:
        trials: all of them, in the order of their numbers.
        best: the best finished one; of equals the first.
        params: its hyperparameters, the fixed ones included: what to refit with.
        fitted: a model with these that has grown on all rows already; ``None`` where one must be fitted.
    """

    trials: tuple[Trial, ...]
    best: Trial
    params: dict[str, Scalar]
    fitted: Fitted | None = None

    @property
    def finished(self) -> int:
        """How many trials were taken to their end."""
        return sum(trial.state == "complete" for trial in self.trials)

    @property
    def scored(self) -> int:
        """How many trials have a value, those given up early included: what ``n_trials`` counts."""
        return sum(trial.state != "failed" for trial in self.trials)

    @classmethod
    def of(cls, task: SearchTask, space: Space, trials: Sequence[Trial]) -> SearchOutcome:
        """Pick the best of ``trials``.

        Raises:
            DataError: none finished; the message says why the last one failed.
        """
        best: Trial | None = None
        for trial in trials:
            if trial.state != "complete" or trial.value is None:
                continue
            if best is None or best.value is None or task.better(trial.value, best.value):
                best = trial
        if best is None:
            reason = trials[-1].message if trials else "the search was stopped before the first one ended"
            raise DataError(f"no trial finished: {reason}")
        return cls(tuple(trials), best, {**space.fixed, **best.params})


@dataclass(frozen=True, slots=True)
class Step:
    """How far a search has come that grows several trials side by side.

    Attributes:
        seconds: that it still takes, about, and rather too many than too few.
        forests: how many of them are left.
        trees: that each of these has.
        best: score of the best one; ``None`` before they can be compared.
    """

    seconds: float
    forests: int
    trees: int
    best: float | None = None


def ignore_progress(_: Step) -> None:
    """Tell nobody of a step."""


class Searcher(Protocol):
    """A search strategy."""

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
        on_step: Callable[[Step], None] = ignore_progress,
        stop: Callable[[], bool],
    ) -> SearchOutcome:
        """Search until ``n_trials`` trials have a value, the space is exhausted or the time is up.

        The same task, space and seed give the same outcome, whether in one go or resumed.

        Args:
            task: what to score trials on.
            space: what to search.
            n_trials: trials wanted in all, ``done`` and those given up early included, failed ones not.
            done: trials of an earlier attempt, by number; they are not paid again.
            timeout: seconds after which no trial is started, those of ``done`` included. The first trial
                always runs.
            enough: asked before each trial but the first; no further one is started once it says so.
            on_trial: called right after each new trial; it keeps it.
            on_step: called by a searcher whose time is not told by the number of trials that are left.
            stop: asked between fits; the search ends early once it says so.

        Raises:
            DataError: no trial finished.
        """
        ...
