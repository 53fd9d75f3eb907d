"""The study of a run that several trainers share: each number is somebody's, and only one's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import optuna

from dmls_core.search.callbacks import ShouldStop, never_stop
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.competition import Entry, next_turn
from dmls_core.search.sequential import FAILURES
from dmls_core.search.shared.database import StudyDatabase
from dmls_core.search.shared.heartbeat import Heartbeat
from dmls_core.search.shared.slots import TrialRecord
from dmls_core.search.shared.suggest import SharedSuggestions
from dmls_core.search.trial import Trial

STOPPED = "dmls:stopped"
"""Attribute of a study: the search was stopped; no trial is to be started."""

Kept = Callable[[], Sequence[Trial]]
"""The trials in the run's folder: what they say is true, whatever the database says."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A trial that is this trainer's to run."""

    number: int
    suggestions: SharedSuggestions
    asked: optuna.Trial


class SharedStudy:
    """All trainers' view of one run's trials. What is decided is decided under one lock.

    Args:
        database: where the study is.
        name: the run's name, the same for all its trainers.
        candidates: the models.
        n_trials: trials wanted in all, as ``Searcher.run`` counts them.
    """

    def __init__(
        self, database: StudyDatabase, name: str, candidates: Sequence[ModelCandidate], n_trials: int
    ) -> None:
        self._database = database
        self._name = name
        self._arms = candidates
        self._n_trials = n_trials
        self._suggestions: dict[str, SharedSuggestions] = {}

    def join(self, kept: Kept, *, finished: Callable[[], bool], leader: bool) -> bool:
        """Take part; the first trainer makes the study. Returns ``False`` if the run is over.

        Args:
            kept: trials of earlier attempts; the study learns of those that it does not know.
            finished: whether the run's result is written.
            leader: whether this trainer leads: it takes back that the search was stopped.
        """
        with self._database.locked(self._name):
            if finished():
                return False
            self._suggestions = {
                candidate.model: SharedSuggestions(
                    candidate, self._database.storage, study_of(self._name, candidate.model)
                )
                for candidate in self._arms
            }
            slots = self._slots()
            for trial in kept():
                known = slots.get(trial.number)
                if trial.model in self._suggestions and (known is None or known.state == "lost"):
                    self._suggestions[trial.model].adopt(trial)
            if leader:
                self._first.note(STOPPED, False)
        return True

    def claim(
        self, kept: Kept, *, late: bool, enough: ShouldStop = never_stop
    ) -> tuple[Mapping[int, TrialRecord], Claim | Literal["wait", "others", "end"]]:
        """Take the next trial: a lost one first.

        Args:
            kept: see ``join``.
            late: whether the time is up, so that no trial is to be started.
            enough: asked of the trials that have ended, once every model has one; see ``Searcher.run``.

        Returns:
            What has become of each number, and the trial; ``wait`` in its place where it depends on trials
            that others are at whether there is one; ``others`` where there is none, but others are still at
            theirs; ``end`` where all is done.
        """
        with self._database.locked(self._name):
            try:
                slots = self._slots()
            except KeyError:
                return {}, "end"
            rest: Literal["others", "end"] = (
                "others" if any(slot.state == "running" for slot in slots.values()) else "end"
            )
            if self._first.noted(STOPPED) or (late and slots) or self._over(slots, enough):
                return slots, rest
            lost = sorted(number for number, slot in slots.items() if slot.state == "lost")
            if lost:
                known = {trial.number: trial for trial in kept()}
                for number in lost:
                    suggestions = self._suggestions[slots[number].model]
                    if number not in known:
                        return slots, self._claimed(suggestions, number, slots, slots[number])
                    # Its trainer died after it had kept the trial and before it had told so.
                    suggestions.adopt(known[number])
                slots = self._slots()
            entries = [self._entry(suggestions, slots) for suggestions in self._suggestions.values()]
            better = self._arms[0].task.better
            turn = next_turn(entries, self._n_trials, better)
            if isinstance(turn, str):
                return slots, rest if turn == "end" else turn
            number = max(slots, default=-1) + 1
            return slots, self._claimed(self._suggestions[turn.model], number, slots, None)

    @contextmanager
    def at_work(self, claim: Claim) -> Iterator[None]:
        """Show signs of life while the block works on a trial; one that it does not end is left to others."""
        suggestions = claim.suggestions
        trial_id = suggestions.trial_id(claim.asked)
        try:
            with Heartbeat(self._database.storage, trial_id, self._database.beat):
                yield
        finally:
            with self._database.locked(self._name):
                suggestions.release(claim.asked)

    def finish(self, claim: Claim, trial: Trial, keep: Callable[[Trial], None]) -> bool:
        """End a trial and keep it, unless another trainer has taken it over meanwhile."""
        with self._database.locked(self._name):
            if not claim.suggestions.holds(claim.asked):
                return False
            keep(trial)
            claim.suggestions.tell(claim.asked, trial)
        return True

    def slots(self) -> dict[int, TrialRecord]:
        """Return what has become of each number."""
        with self._database.locked(self._name):
            return self._slots()

    def stop(self) -> None:
        """Have all trainers start no further trial."""
        with self._database.locked(self._name):
            self._first.note(STOPPED, True)

    def _over(self, slots: Mapping[int, TrialRecord], enough: ShouldStop) -> bool:
        ended = [
            slot.as_trial() for _, slot in sorted(slots.items()) if slot.state not in ("running", "lost")
        ]
        return len({trial.model for trial in ended}) == len(self._arms) and enough(ended)

    @property
    def _first(self) -> SharedSuggestions:
        return next(iter(self._suggestions.values()))

    def _slots(self) -> dict[int, TrialRecord]:
        return {
            number: slot
            for suggestions in self._suggestions.values()
            for number, slot in suggestions.slots().items()
        }

    def _entry(self, suggestions: SharedSuggestions, slots: Mapping[int, TrialRecord]) -> Entry:
        own = [slot for _, slot in sorted(slots.items()) if slot.model == suggestions.candidate.model]
        ended = [slot.state == "failed" for slot in own if slot.state != "running"]
        hopeless = sum(ended) > self._n_trials or sum(ended[-FAILURES:]) == FAILURES
        return Entry(
            model=suggestions.candidate.model,
            values=tuple(slot.value if slot.state == "complete" else None for slot in own if slot.scored),
            running=sum(slot.state == "running" for slot in own),
            closed=hopeless or suggestions.exhausted(len(own)),
        )

    def _claimed(
        self,
        suggestions: SharedSuggestions,
        number: int,
        slots: Mapping[int, TrialRecord],
        lost: TrialRecord | None,
    ) -> Claim:
        position = sum(s.model == suggestions.candidate.model and s.number < number for s in slots.values())
        return Claim(number, suggestions, suggestions.claim(number, position, lost))


def study_of(name: str, model: str) -> str:
    """Return the name of Optuna's study of one model of a run."""
    return f"{name}/{model}"


def remove_studies(database: StudyDatabase, name: str, models: Sequence[str]) -> None:
    """Remove a run's studies; to be called once its result is written, which keeps them from coming back."""
    with database.locked(name):
        known = set(optuna.get_all_study_names(database.storage))
        for model in models:
            if study_of(name, model) in known:
                optuna.delete_study(study_name=study_of(name, model), storage=database.storage)
