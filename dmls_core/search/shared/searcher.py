"""What one of several trainers does: take a trial, score it, keep it, again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dmls_core.search.callbacks import ShouldStop, never_stop
from dmls_core.search.sequential import effective_key, repeat_of
from dmls_core.search.shared.slots import TrialRecord
from dmls_core.search.shared.study import Claim, Kept, SharedStudy
from dmls_core.search.trial import Trial

POLL = 1.0
"""Seconds between two looks at what the other trainers are at."""


@dataclass(frozen=True, slots=True)
class Member:
    """Which of a run's trainers this one is.

    Attributes:
        number: from 0; number 0 leads: it waits for the others' trials.
        workers: how many trainers were asked for.
    """

    number: int
    workers: int

    @property
    def leads(self) -> bool:
        """Whether it waits for the others, refits and writes the result."""
        return self.number == 0


@dataclass(frozen=True, slots=True)
class SharedSearch:
    """One trainer's part in a shared search.

    Attributes:
        study: what the trainers share.
        member: which one this is.
        kept: returns the trials that the run's folder holds.
    """

    study: SharedStudy
    member: Member
    kept: Kept

    def run(
        self,
        *,
        timeout: float | None,
        enough: ShouldStop = never_stop,
        on_trial: Callable[[Trial], None],
        on_slots: Callable[[Mapping[int, TrialRecord]], None],
        stop: Callable[[], bool],
        leave: Callable[[], bool] = lambda: False,
    ) -> None:
        """Work until there is no trial left to take; the leader, until all trials have ended.

        A helper leaves while others are still at their trials, or when its place is needed elsewhere. The
        leader does not wait for trainers, only for trials that show signs of life; it takes over those that
        do not.

        Args:
            timeout: seconds after which no trial is started. What was paid before this trainer began counts
                as if it had been shared among all workers.
            enough: see ``Searcher.run``.
            on_trial: keeps a trial; called under the study's lock, so that no two write one number.
            on_slots: told what has become of all numbers, whenever the study was looked at.
            stop: asked between steps.
            leave: asked of a helper after each of its trials: whether another run waits for its place.
        """
        slots: Mapping[int, TrialRecord] = self.study.slots()
        paid = sum(slot.seconds for slot in slots.values()) / self.member.workers
        started = time.monotonic() - paid
        on_slots(slots)
        while True:
            if stop():
                self.study.stop()
                return
            late = timeout is not None and time.monotonic() - started >= timeout
            slots, claim = self.study.claim(self.kept, late=late, enough=enough)
            on_slots(slots)
            if isinstance(claim, Claim):
                self._work(claim, slots, on_trial, stop)
                if not self.member.leads and leave():
                    return
            elif claim == "wait" or (claim == "others" and self.member.leads):
                time.sleep(POLL)
            else:
                return

    def _work(
        self,
        claim: Claim,
        slots: Mapping[int, TrialRecord],
        on_trial: Callable[[Trial], None],
        stop: Callable[[], bool],
    ) -> None:
        suggestions = claim.suggestions
        candidate = suggestions.candidate
        params = suggestions.params(claim.asked)
        with self.study.at_work(claim):
            trial = self._repeated(claim, slots) or candidate.evaluator.evaluate(
                candidate.task,
                candidate.space,
                claim.number,
                params,
                should_prune=suggestions.should_prune(claim.asked),
                stop=stop,
            )
            if trial is not None:
                self.study.finish(claim, replace(trial, model=candidate.model), on_trial)

    def _repeated(self, claim: Claim, slots: Mapping[int, TrialRecord]) -> Trial | None:
        """Return the outcome of a trial that has been run with other words for the same hyperparameters."""
        suggestions = claim.suggestions
        candidate = suggestions.candidate
        params = suggestions.params(claim.asked)

        def key(values: Mapping[str, object]) -> str:
            return effective_key(candidate.task, candidate.space, suggestions.space, values)  # type: ignore[arg-type]

        wanted = key(params)
        ended = (
            s for s in slots.values() if s.model == candidate.model and s.state in ("complete", "pruned")
        )
        same = next((s.number for s in ended if key(suggestions.decode(s.params)) == wanted), None)
        if same is None:
            return None
        first = next((trial for trial in self.kept() if trial.number == same), None)
        return first and repeat_of(first, claim.number, params)
