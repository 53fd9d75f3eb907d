"""Report the trainer's progress: log lines for people, ``progress.json`` for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dmls_core.html.formats import counted
from dmls_core.training.run_folder import RunFolder

if TYPE_CHECKING:
    from dmls_core.search.callbacks import SearchProgress
    from dmls_core.search.task import SearchTask
    from dmls_core.search.trial import Trial

_SCHEMA = 1

State = Literal["loading", "searching", "refitting", "exporting", "finished", "failed"]

_REST = 0.5
"""Minimum seconds between two writes of ``progress.json`` within one state."""

QUIET = 2.0
"""Seconds without a log line after which a step between two trials is logged."""


class Ended(Protocol):
    """The counted part of an ended trial of any trainer."""

    @property
    def number(self) -> int:
        """Its number."""
        ...

    @property
    def state(self) -> str:
        """Its final state."""
        ...

    @property
    def value(self) -> float | None:
        """Its score, if it has one."""
        ...


class Progress:
    """Report a run's progress, and time its phases."""

    def __init__(
        self, folder: RunFolder, say: Callable[[str], None], total: int, *, leads: bool = True
    ) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()
        self._folder = folder
        self._say = say
        self._total = total
        self._leads = leads
        self._logged: set[int] = set()
        self._scored: set[int] = set()
        self._any_complete = False
        self._best: float | None = None
        self._state: State = "loading"
        self._written = 0.0
        self._paid: list[float] = []
        self._until: float | None = None
        self._foreseen: float | None = None
        self._said = time.monotonic()
        self._earlier: dict[str, Any] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase as ``seconds[name]``."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def rounded(self) -> dict[str, float]:
        """Return the rounded seconds of each phase, and in total."""
        return {
            **{name: round(seconds, 3) for name, seconds in self.seconds.items()},
            "total": round(time.monotonic() - self._started, 3),
        }

    def enter(self, state: State, message: str) -> None:
        """Enter a state and log it."""
        self._state = state
        # Until the trials of an earlier attempt are read: its progress must not fall to 0.
        self._earlier = self._folder.earlier_progress() if state == "loading" else {}
        self.note(message)
        self._write(message)

    def note(self, message: str) -> None:
        """Log a line."""
        self._said = time.monotonic()
        self._say(message)

    def warn(self, message: str) -> None:
        """Log a warning."""
        self.note(f"warning: {message}")

    def expect(self, total: int) -> None:
        """Set the number of trials; log it if it is smaller than what was requested."""
        if total < self._total:
            self.note(f"{counted(total, 'trial')} instead of {self._total}: no others differ")
        self._total = total

    def resume(self, task: SearchTask, earlier_trials: list[Trial], *, shared: bool = False) -> None:
        """Count the trials of an earlier attempt, and of the other trainers of a ``shared`` search."""
        for trial in earlier_trials:
            self._count(task, trial)
        if earlier_trials and not shared:
            self.note(f"continuing after {counted(len(earlier_trials), 'trial')} of an earlier attempt")

    def limit(self, seconds: float | None) -> None:
        """Limit the estimated remaining time to ``seconds``, after which the search ends."""
        self._until = None if seconds is None else time.monotonic() + seconds

    def step(self, step: SearchProgress) -> None:
        """Record a search's estimate; log it if there was no log line for ``QUIET`` seconds."""
        self._foreseen = step.remaining_seconds
        if step.best is None or time.monotonic() - self._said < QUIET:
            return
        who = "the winner has" if step.forests == 1 else f"{step.forests} forests have"
        line = f"{who} {step.trees} trees  best {format_score(step.best)}{self._eta()}"
        self.note(line)
        self._write(line)

    def others(self, task: SearchTask, trials: Iterable[Ended]) -> None:
        """Count the ended trials of other trainers."""
        before = len(self._scored)
        for trial in trials:
            self._count(task, trial)
        if len(self._scored) > before and time.monotonic() - self._written >= _REST:
            self._write(f"{len(self._scored)} of {counted(self._total, 'trial')}")

    def trial(self, task: SearchTask, metric: str, trial: Trial, *, continued: bool = False) -> None:
        """Log a trial that has ended, or that continued after it was logged before."""
        # Another worker may have logged it first.
        counted = continued or trial.number in self._logged
        self._count(task, trial)
        if counted and trial.same_as is not None:
            return  # the repeated trial has a line
        if trial.same_as is None and not counted:
            self._paid.append(trial.seconds)
        if trial.value is None:
            line = f"trial {trial.number} failed: {trial.message}"
        else:
            what = f"trial {trial.number}" + (" went on" if counted else "")
            count = "" if counted else f"  {len(self._scored)} of {self._total}"
            best = trial.value if self._best is None else self._best
            line = (
                f"{what}  {metric} {format_score(trial.value)}  best {format_score(best)}{count}{self._eta()}"
            )
            if trial.same_as is not None:
                line += f"  (same as trial {trial.same_as})"
            elif trial.message:
                line += f"  ({trial.message})"
        if trial.model:
            line += f"  {trial.model}"
        self.note(line)
        if time.monotonic() - self._written >= _REST or len(self._scored) == self._total:
            self._write(line)

    def _count(self, task: SearchTask, trial: Ended) -> None:
        self._logged.add(trial.number)
        if trial.value is None:
            return
        self._scored.add(trial.number)
        # Pruned trials count as scores only while no trial is complete.
        if trial.state == "complete" and not self._any_complete:
            self._any_complete, self._best = True, None
        if trial.state != "complete" and self._any_complete:
            return
        if self._best is None or task.better(trial.value, self._best):
            self._best = trial.value

    def _estimate(self) -> float | None:
        """Return the estimated seconds of the trials to come, for one trainer."""
        if self._foreseen is not None:
            return self._foreseen
        left = self._total - len(self._scored)
        return left * sum(self._paid) / len(self._paid) if self._paid else None

    def _remaining(self) -> float | None:
        """Return the estimated rest of the search, in seconds: it ends with its timeout."""
        seconds = self._estimate()
        if seconds is None or self._until is None:
            return seconds
        return min(seconds, max(0.0, self._until - time.monotonic()))

    def _eta(self) -> str:
        remaining = self._remaining() if self._estimate() else None
        return "" if remaining is None else f"  eta {duration(remaining)}"

    def _write(self, message: str) -> None:
        self._written = time.monotonic()
        # A worker other than 0 reports the shared search only, not its own start and end.
        if not self._leads and self._state != "searching":
            return
        self._folder.progress(
            {
                "schema": _SCHEMA,
                "state": self._state,
                "finished": len(self._scored),
                "total": self._total,
                "best": self._best,
                "remaining_seconds": self._remaining(),
                "message": message,
            }
            | self._earlier
        )


def duration(seconds: float) -> str:
    """Format a time span for people: ``4 s``, ``3 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_score(score: float) -> str:
    """Format a score with four decimals, or with four digits if it is very small or large."""
    return f"{score:.4f}" if 1e-3 <= abs(score) < 1e6 or score == 0 else f"{score:.4g}"
