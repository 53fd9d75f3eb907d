"""The time that a search takes, over all attempts: kept as it passes, so that a kill loses little of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from dmls_core.errors import DataError, DmlsError, ValidationIssue
from dmls_core.search import Trial
from dmls_core.training.run_folder import RunFolder

FIRST_BEAT, LAST_BEAT = 0.5, 15.0
"""Seconds until the time is first kept, and between two times later: each is twice the one before."""

STARTS = 3
"""Attempts that may use up the time without a single trial; a further one is not made."""


class SearchClock:
    """Runs while the block searches.

    A trial that ends keeps its own seconds; what a killed trainer spent on one that did not is known from
    here alone.

    Args:
        folder: the run's folder.
        timeout: the spec's; without one nothing is kept.
    """

    def __init__(self, folder: RunFolder, timeout: float | None) -> None:
        self._folder = folder
        self._timeout = timeout
        self._before, self._starts = folder.clock() if timeout is not None else (0.0, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dmls-clock", daemon=True)

    def left(self, done: Sequence[Trial], *, workers: int = 1) -> float | None:
        """Return the timeout for a search that counts ``done`` itself, less what these do not tell.

        Args:
            done: trials of earlier attempts.
            workers: trainers that shared them.

        Raises:
            DataError: the time is up, and attempt after attempt ended without a trial.
        """
        if self._timeout is None:
            return None
        if not done and self._starts >= STARTS and self._before >= self._timeout:
            raise DataError(
                ValidationIssue(
                    "the time was up before the first trial ended",
                    key="search.timeout",
                    found=f"{self._timeout:g} s, {self._before:.0f} s spent in {self._starts} attempts",
                    hint="raise it, or let trials take less: fewer trees, fewer rows",
                )
            )
        paid = sum(trial.seconds for trial in done) / workers
        self._before = max(self._before, paid)
        return self._timeout - (self._before - paid)

    @property
    def remaining(self) -> float | None:
        """Seconds until the time is up, once ``left`` was asked; ``None`` without a timeout."""
        return None if self._timeout is None else self._timeout - self._before

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._starts += 1
        if self._timeout is not None:
            self._keep()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._timeout is not None:
            self._thread.join()

    def _run(self) -> None:
        beat = FIRST_BEAT
        while not self._done.wait(beat):
            self._keep()
            beat = min(LAST_BEAT, 2 * beat)

    def _keep(self) -> None:
        try:
            self._folder.keep_clock(self._before + time.monotonic() - self._started, self._starts)
        except DmlsError:
            return  # the next one may be kept; the search's own files tell of a store that is gone
