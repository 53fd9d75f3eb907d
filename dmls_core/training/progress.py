"""What the trainer tells while it works: lines for people, ``progress.json`` for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from dmls_core.search import Problem, Trial
from dmls_core.training.run_folder import RunFolder

SCHEMA = 1

State = Literal["loading", "searching", "refitting", "exporting", "finished", "failed"]

REST = 0.5
"""Least seconds between two writes of ``progress.json`` within one state."""


class Progress:
    """Tells how a run goes, and times its phases."""

    def __init__(self, folder: RunFolder, say: Callable[[str], None], total: int) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()
        self._folder = folder
        self._say = say
        self._total = total
        self._finished = 0
        self._best: float | None = None
        self._state: State = "loading"
        self._written = 0.0
        self._paid: list[float] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase as ``seconds[name]``."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def rounded(self) -> dict[str, float]:
        """Return the seconds of each phase, and in all so far."""
        return {
            **{name: round(seconds, 3) for name, seconds in self.seconds.items()},
            "total": round(time.monotonic() - self._started, 3),
        }

    def enter(self, state: State, message: str) -> None:
        """Enter a state and say so."""
        self._state = state
        self._say(message)
        self._write(message)

    def warn(self, message: str) -> None:
        """Say something that the user should know."""
        self._say(f"warning: {message}")

    def resume(self, problem: Problem, done: list[Trial]) -> None:
        """Count trials of an earlier attempt."""
        for trial in done:
            self._count(problem, trial)
        if done:
            self._say(f"found {len(done)} trials of an earlier attempt: they are not run again")

    def trial(self, problem: Problem, metric: str, trial: Trial) -> None:
        """Tell about a trial that has just ended."""
        self._count(problem, trial)
        if trial.same_as is None:
            self._paid.append(trial.seconds)
        line = f"trial {self._finished}/{self._total}  "
        if trial.value is None:
            line = f"trial failed: {trial.message}"
        else:
            line += f"{metric} {trial.value:.4f}  best {self._best:.4f}{self._eta()}"
        if trial.same_as is not None:
            line += f"  (same as number {trial.same_as})"
        self._say(line)
        if time.monotonic() - self._written >= REST or self._finished == self._total:
            self._write(line)

    def _count(self, problem: Problem, trial: Trial) -> None:
        if trial.value is None:
            return
        self._finished += 1
        if self._best is None or problem.better(trial.value, self._best):
            self._best = trial.value

    def _eta(self) -> str:
        left = self._total - self._finished
        if not left or not self._paid:
            return ""
        return f"  eta {duration(left * sum(self._paid) / len(self._paid))}"

    def _write(self, message: str) -> None:
        self._written = time.monotonic()
        self._folder.progress(
            {
                "schema": SCHEMA,
                "state": self._state,
                "finished": self._finished,
                "total": self._total,
                "best": self._best,
                "message": message,
            }
        )


def duration(seconds: float) -> str:
    """Write a time span for people: ``4 s``, ``3 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
