"""The search loop: one loop over a study for any number of workers and models.

A worker claims a trial, scores it and records it, until nothing is left to claim. The study decides what a
worker claims, so every worker runs the same algorithm; a single worker never waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dmls_core.search.callbacks import SearchProgress, ShouldStop, ignore_progress, never_stop
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.study.candidates import TrialRecord
from dmls_core.search.study.storage import LocalStorage
from dmls_core.search.study.study import Claim, SearchStudy
from dmls_core.search.task import SearchOutcome
from dmls_core.search.trial import Trial, contiguous_trials
from dmls_core.search.winners import pick_winner

_POLL_SECONDS = 1.0
"""Interval at which a waiting worker reads the trials of other workers."""


@dataclass(frozen=True, slots=True)
class SearchWorker:
    """One of a run's trainers, at most ``workers``; the leader, number 0, waits for the others' trials."""

    number: int = 0
    workers: int = 1

    @property
    def leads(self) -> bool:
        """Whether it waits for the other workers, refits and writes the result."""
        return self.number == 0


def optimize(
    study: SearchStudy,
    worker: SearchWorker,
    *,
    timeout: float | None = None,
    should_stop: ShouldStop = never_stop,
    on_progress: Callable[[SearchProgress], None] = ignore_progress,
    on_records: Callable[[Mapping[int, TrialRecord]], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    leave: Callable[[], bool] = lambda: False,
) -> None:
    """Run trials until none is left to claim; the leader returns when all trials have ended.

    A helper returns while other workers still run trials. The leader waits for trials whose heartbeat has not
    expired, not for workers; it takes over stale trials.

    Args:
        study: the study that the worker has joined.
        worker: this worker.
        timeout: seconds after which no trial starts, and running ones, but those of forests, end at their
            next step if a trial is complete. Trials of earlier attempts count as if all workers had shared
            them evenly.
        should_stop: see ``early_stopping``.
        on_progress: called by a search of one model with successive halving.
        on_records: called with all records before each claim.
        stop: called between steps; the search ends once it returns ``True``.
        leave: called after each trial of a helper and while it waits; ``True`` if another run needs its slot.
    """
    records: Mapping[int, TrialRecord] = study.records()
    paid = sum(record.trial.seconds for record in records.values() if record.trial) / worker.workers
    started = time.monotonic() - paid

    def time_used() -> float:
        # A timeout of 0 is over at once.
        return 0.0 if timeout is None else (time.monotonic() - started) / max(timeout, 1e-9)

    on_records(records)
    while True:
        if stop():
            study.stop()
            return
        used = time_used()
        records, claim = study.claim(late=used >= 1, should_stop=should_stop, time_used=used)
        on_records(records)
        if study.progress and (not isinstance(claim, Claim) or claim.promotion):
            on_progress(study.progress)
        if isinstance(claim, Claim):
            study.run(claim, stop, late=lambda: time_used() >= 1)
            if on_progress is not ignore_progress and not claim.promotion:
                progress = study.first_progress()
                if progress:
                    on_progress(progress)
        elif claim == "wait" or (claim == "others" and worker.leads):
            time.sleep(_POLL_SECONDS)
        else:
            return
        if not worker.leads and leave():
            return


def search(
    candidates: Sequence[ModelCandidate],
    n_trials: int,
    *,
    earlier_trials: Sequence[Trial] = (),
    timeout: float | None = None,
    should_stop: ShouldStop = never_stop,
    on_trial: Callable[[Trial], None] = lambda _: None,
    on_progress: Callable[[SearchProgress], None] = ignore_progress,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[ModelCandidate, SearchOutcome]:
    """Search with one worker; return the best model and the outcome.

    The same tasks, spaces and seeds give the same outcome, in one go or resumed. ``n_trials`` is the
    number of trials with a value to reach, including pruned ones and ``earlier_trials``, those of an earlier
    attempt. ``on_trial`` is called with each trial as it ends, and again when it reaches a further rung. For
    the other callbacks and errors, see ``optimize`` and ``pick_winner``.
    """
    finished = contiguous_trials(earlier_trials)
    study = SearchStudy(
        LocalStorage(),
        "search",
        candidates,
        n_trials,
        read_trials=lambda: finished,
        keep=lambda trial, _: on_trial(trial),
    )
    study.join()
    optimize(
        study, SearchWorker(), timeout=timeout, should_stop=should_stop, on_progress=on_progress, stop=stop
    )
    return pick_winner(candidates, study.trials())
