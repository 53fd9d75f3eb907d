"""What has become of each trial number, read from the trials that Optuna knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from optuna.trial import FrozenTrial, TrialState

from dmls_core.search.trial import Trial

NUMBER = "dmls:number"
"""Attribute of an Optuna trial: which trial of the run it is. A number that is taken over has several."""

CLAIMED = "dmls:claimed"
"""Attribute: the trial's first sign of life is recorded, so that it is missed if its trainer dies."""

REFUSED = "dmls:refused"
"""Attribute: the library refused the hyperparameters; a trial that only failed lost its trainer."""

SAME_AS = "dmls:same_as"
"""Attribute: the number of the trial that had the same hyperparameters before it."""

SECONDS = "dmls:seconds"
"""Attribute: what the trial took."""

Ending = Literal["running", "complete", "pruned", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial number.

    Attributes:
        number: the trial's number in the run.
        model: the model that it tries.
        state: ``lost`` where whoever was at it is gone.
        value: its score, where it has one.
        seconds: what it took.
        same_as: see ``Trial``.
        params: hyperparameters as Optuna has them.
        optuna: number of the latest Optuna trial that stands for it.
    """

    number: int
    model: str
    state: Ending
    value: float | None
    seconds: float
    same_as: int | None
    params: Mapping[str, Any]
    optuna: int

    @property
    def scored(self) -> bool:
        """Whether it has a value, so that ``n_trials`` counts it."""
        return self.state in ("complete", "pruned")

    def as_trial(self) -> Trial:
        """Return what is known of a trial that has ended.

        Raises:
            ValueError: it has not.
        """
        if self.state == "running" or self.state == "lost":
            raise ValueError(f"trial {self.number} has not ended")
        return Trial(
            self.number,
            self.state,
            "",
            self.params,
            self.value,
            seconds=self.seconds,
            same_as=self.same_as,
            model=self.model,
        )


def read_records(model: str, trials: Iterable[FrozenTrial]) -> dict[int, TrialRecord]:
    """Return what is known of each number; the latest Optuna trial of a number stands for it.

    To be called under the study's lock: whoever claims a trial marks it before it leaves the lock, so one
    that waits or runs without the mark lost its trainer in between.
    """
    slots: dict[int, TrialRecord] = {}
    for trial in trials:
        number = trial.user_attrs.get(NUMBER)
        if number is not None:
            slots[number] = TrialRecord(
                number,
                model,
                _state(trial),
                trial.value if trial.state == TrialState.COMPLETE else _last(trial),
                trial.user_attrs.get(SECONDS, 0.0),
                trial.user_attrs.get(SAME_AS),
                trial.params,
                trial.number,
            )
    return slots


def _state(trial: FrozenTrial) -> Ending:
    match trial.state:
        case TrialState.COMPLETE:
            return "complete"
        case TrialState.PRUNED:
            return "pruned"
        case TrialState.RUNNING if trial.user_attrs.get(CLAIMED):
            return "running"
        case TrialState.FAIL if trial.user_attrs.get(REFUSED):
            return "failed"
        case _:
            return "lost"


def _last(trial: FrozenTrial) -> float | None:
    if trial.state != TrialState.PRUNED or not trial.intermediate_values:
        return None
    return trial.intermediate_values[max(trial.intermediate_values)]
