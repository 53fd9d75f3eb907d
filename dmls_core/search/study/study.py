"""The study of a search: records its trials and decides what a worker claims next.

The next claim follows from the study alone, under its lock: first a stale trial, then a new trial of the
model whose turn it is (``allocation.py``), then a promotion of successive halving (``forest/halving.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

import optuna

from dmls_core.search.callbacks import SearchProgress, ShouldStop, never_stop
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.forest.halving import HalvingDecision, Promotion
from dmls_core.search.objective import ShouldPrune
from dmls_core.search.study.allocation import ModelTrials, expected_trials, next_turn
from dmls_core.search.study.candidates import (
    CandidateStudy,
    Promotions,
    TrialRecord,
    promotions_of,
    scored_values,
)
from dmls_core.search.study.storage import StudyStorage, TrialClaims
from dmls_core.search.trial import Trial

_MAX_FAILURES = 10
"""Failed trials in a row after which a model gets no further trial."""

_STOPPED = "dmls:stopped"
"""Attribute of a study: the search was stopped, and no trial starts."""

_CLOSED = "dmls:closed"
"""Attribute of a study: the time was up, or early stopping ended the search."""

ReadTrials = Callable[[], Sequence[Trial]]
"""Returns the trials in the run's folder, which take precedence over the storage."""

Keep = Callable[[Trial, bool], None]


@dataclass(frozen=True, slots=True)
class Claim:
    """A trial, or a promotion of one, that this worker runs."""

    study: CandidateStudy
    claims: TrialClaims
    asked: optuna.Trial
    number: int
    bracket: int = 0
    repeats: Trial | None = None
    promotion: Promotion | None = None


class SearchStudy:
    """The trials of one search.

    Its ``name`` is the same for all workers; ``n_trials`` is the requested number of trials with a value.
    ``keep`` writes a trial to the run's folder, with ``True`` if an earlier rung had ended it.
    ``read_trials`` reads all of them.
    """

    def __init__(
        self,
        storage: StudyStorage,
        name: str,
        candidates: Sequence[ModelCandidate],
        n_trials: int,
        *,
        read_trials: ReadTrials,
        keep: Keep,
    ) -> None:
        self._storage = storage
        self._name = name
        self._candidates = candidates
        self._n_trials = n_trials
        self._read_trials = read_trials
        self._keep = keep
        self._studies: dict[str, CandidateStudy] = {}
        self.progress: SearchProgress | None = None

    def join(self, *, finished: Callable[[], bool] = lambda: False, leader: bool = True) -> bool:
        """Join the search, or create it as the first worker; return ``False`` if the run is over.

        ``finished`` returns whether the run's result is written. The leader lets a stopped search continue.
        """
        with self._storage.locked(self._name):
            if finished():
                return False
            self._studies = {
                candidate.model: CandidateStudy(
                    candidate, self._storage, _study_of(self._name, candidate.model)
                )
                for candidate in self._candidates
            }
            records = self._records()
            for trial in sorted(self._read_trials(), key=lambda trial: trial.number):
                record = records.get(trial.number)
                model = trial.model or self._candidates[0].model
                if model in self._studies and (record is None or record.state == "stale"):
                    self._studies[model].adopt(replace(trial, model=model))
            if leader:
                self._first.set_user_attr(_STOPPED, False)
        return True

    def claim(
        self, *, late: bool, should_stop: ShouldStop = never_stop, time_used: float = 0.0
    ) -> tuple[Mapping[int, TrialRecord], Claim | Literal["wait", "others", "end"]]:
        """Take the next trial or promotion; return it after the record of each number.

        Once every model has a trial, no trial starts if ``late`` (the time is up) or if ``should_stop``
        returns ``True`` for the ended trials. Instead of a claim, the result holds ``wait`` if the next claim
        depends on running trials; ``others`` if nothing is left to claim but other workers still run trials;
        ``end`` if all trials have ended. ``time_used``: see ``expected_trials``.
        """
        with self._storage.locked(self._name):
            while True:
                try:
                    records = self._records()
                except KeyError:
                    # Another worker has removed the study: the run is over.
                    return {}, "end"
                claim = self._next(records, late=late, should_stop=should_stop, time_used=time_used)
                if claim is not None:
                    return records, claim

    def _next(
        self,
        records: Mapping[int, TrialRecord],
        *,
        late: bool,
        should_stop: ShouldStop,
        time_used: float,
    ) -> Claim | Literal["wait", "others", "end"] | None:
        """Return the next claim; ``None`` if the records have changed."""
        running = any(record.state == "running" for record in records.values())
        rest: Literal["others", "end"] = "others" if running else "end"
        if self._first.user_attrs.get(_STOPPED):
            return rest
        turn: Literal["wait", "others", "end"] = rest
        if not self._closing(records, late=late, should_stop=should_stop):
            stale = sorted(number for number, record in records.items() if record.state == "stale")
            if stale:
                return self._take_over(stale, records)
            entries = [self._entry(study, records) for study in self._studies.values()]
            expected = expected_trials(self._n_trials, sum(entry.taken for entry in entries), time_used)
            following = next_turn(entries, expected, self._candidates[0].task.better)
            if not isinstance(following, str):
                number = max(records, default=-1) + 1
                return self._claim_trial(self._studies[following.model], number, records, None)
            turn = rest if following == "end" else following
        # No new trial starts before successive halving has decided.
        for study in self._studies.values():
            if study.promotions and _running(study, records):
                # Its first rung may lead to promotions for every worker.
                turn = "wait"
            elif study.promotions:
                decided = self._promote(study, study.promotions, records, late=late)
                if decided is None or isinstance(decided, Claim):
                    return decided
                turn = max(turn, decided, key=("end", "others", "wait").index)
        return turn

    def _promote(
        self, study: CandidateStudy, promotions: Promotions, records: Mapping[int, TrialRecord], *, late: bool
    ) -> Claim | Literal["wait", "others", "end"] | None:
        """Return the next promotion, as ``_next`` does."""
        first = [trial for trial in study.pending(records) if trial.same_as is None]
        decision = promotions.decide(first, late=late)
        if decision.leaders and len(self._studies) == 1:
            self.progress = promotions.objective.halving.progress(decision)
        if self._end(promotions, decision, records):
            return None
        if not decision.promotions:
            return "end"
        free = promotions.unclaimed(decision)
        if not free:
            # Helpers leave while the winner of a bracket grows; other rungs may lead to promotions for them.
            return "wait" if len(decision.leaders) > 1 or len(self._studies) > 1 else "others"
        asked = promotions.claim(free[0])
        return Claim(study, promotions.claims, asked, free[0].first.number, promotion=free[0])

    def _end(
        self, promotions: Promotions, decision: HalvingDecision, records: Mapping[int, TrialRecord]
    ) -> list[Trial]:
        """Keep the newly ended trials and those that repeat them; return the former."""
        new = [trial for trial in decision.ended if not _same_end(trial, records[trial.number].trial)]
        structural = promotions.objective.suggested.searched
        for trial in new:
            for record in records.values():
                if record.trial and record.trial.same_as == trial.number:
                    asked = {name: record.trial.params[name] for name in structural}
                    again = replace(trial.repeated(record.number, asked), bracket=record.trial.bracket)
                    self._keep(again, True)
                    promotions.end(again)
            # Repeats first, and the winner last: its completion ends the bracket.
            self._keep(trial, True)
            promotions.end(trial)
        return new

    def run(self, claim: Claim, stop: Callable[[], bool], late: Callable[[], bool] = lambda: False) -> None:
        """Run a claimed trial or promotion; record it unless another worker has taken it over.

        Once ``late`` returns ``True`` (the time is up), a trial is pruned if any trial is complete.
        """
        with self._at_work(claim):
            if claim.promotion and claim.study.promotions:
                self._run_promotion(claim, claim.promotion, claim.study.promotions)
            else:
                self._run_trial(claim, stop, late)

    def _run_trial(self, claim: Claim, stop: Callable[[], bool], late: Callable[[], bool]) -> None:
        study = claim.study
        params = study.params(claim.asked)
        trial = (
            claim.repeats.repeated(claim.number, params)
            if claim.repeats
            else study.objective.evaluate(
                claim.number, params, should_prune=self._pruner(claim, late), stop=stop
            )
        )
        if trial is None:
            return
        trial = replace(trial, model=study.candidate.model, bracket=claim.bracket)
        with self._storage.locked(self._name):
            if claim.claims.owned(claim.asked):
                self._keep(trial, False)
                study.finish(claim.asked, trial)

    def _pruner(self, claim: Claim, late: Callable[[], bool]) -> ShouldPrune:
        by_score = claim.study.should_prune(claim.asked)

        def should_prune(steps: int, score: float) -> bool:
            if by_score(steps, score):
                return True
            return late() and any(record.state == "complete" for record in self.records().values())

        return should_prune

    def _run_promotion(self, claim: Claim, promotion: Promotion, promotions: Promotions) -> None:
        rung = promotions.objective.promote(promotion)
        first = promotion.first
        trial = replace(rung.trial, model=first.model, bracket=first.bracket)
        rung = replace(rung, trial=trial, alone=len(promotion.survivors) == 1)
        with self._storage.locked(self._name):
            if claim.claims.owned(claim.asked):
                promotions.finish(claim.asked, rung)

    @contextmanager
    def _at_work(self, claim: Claim) -> Iterator[None]:
        """Record heartbeats while the block runs; release the claim if the block does not end it."""
        try:
            with self._storage.heartbeat(claim.claims.id_of(claim.asked.number)):
                yield
        finally:
            with self._storage.locked(self._name):
                claim.claims.release(claim.asked)

    def records(self) -> dict[int, TrialRecord]:
        """Return the record of each number."""
        with self._storage.locked(self._name):
            return self._records()

    def trials(self) -> list[Trial]:
        """Return the ended trials, by number."""
        return [record.trial for _, record in sorted(self.records().items()) if record.trial]

    def stop(self) -> None:
        """Start no further trial in any worker."""
        with self._storage.locked(self._name):
            self._first.set_user_attr(_STOPPED, True)

    def first_progress(self) -> SearchProgress | None:
        """Return the progress of a first rung of successive halving; ``None`` for other searches."""
        (study, *others) = self._studies.values()
        if others or not study.promotions:
            return None
        return study.promotions.objective.halving.first_progress(self.trials())

    @property
    def _first(self) -> optuna.Study:
        return next(iter(self._studies.values())).study

    def _records(self) -> dict[int, TrialRecord]:
        return {
            number: record for study in self._studies.values() for number, record in study.records().items()
        }

    def _closing(self, records: Mapping[int, TrialRecord], *, late: bool, should_stop: ShouldStop) -> bool:
        if self._first.user_attrs.get(_CLOSED):
            return True
        if len({record.model for record in records.values()}) < len(self._studies):
            return False
        ended = [record.trial for _, record in sorted(records.items()) if record.trial]
        if late or (len({trial.model for trial in ended}) == len(self._studies) and should_stop(ended)):
            # Permanently: trials that successive halving ends must not reopen the search.
            self._first.set_user_attr(_CLOSED, True)
            return True
        return False

    def _take_over(self, stale: Sequence[int], records: Mapping[int, TrialRecord]) -> Claim | None:
        written = {trial.number: trial for trial in self._read_trials()}
        for number in stale:
            study = self._studies[records[number].model]
            if number not in written:
                return self._claim_trial(study, number, records, records[number])
            # Its worker died between writing the trial's file and recording it.
            study.adopt(written[number])
        return None

    def _claim_trial(
        self,
        study: CandidateStudy,
        number: int,
        records: Mapping[int, TrialRecord],
        stale: TrialRecord | None,
    ) -> Claim:
        model = study.candidate.model
        position = sum(r.model == model and r.number < number for r in records.values())
        bracket = study.bracket(records)
        asked = study.claim(number, position, stale)
        repeats = study.same_as(study.params(asked), records)
        return Claim(study, study.claims, asked, number, bracket, repeats)

    def _entry(self, study: CandidateStudy, records: Mapping[int, TrialRecord]) -> ModelTrials:
        model = study.candidate.model
        of_model = [record for _, record in sorted(records.items()) if record.model == model]
        failed = [record.state == "failed" for record in of_model if record.state != "running"]
        hopeless = sum(failed) > self._n_trials or sum(failed[-_MAX_FAILURES:]) == _MAX_FAILURES
        pending = {trial.number for trial in study.pending(records)}
        ended = [record.trial for record in of_model if record.trial and record.number not in pending]
        return ModelTrials(
            model=model,
            values=scored_values(ended),
            running=len(pending) + sum(record.state == "running" for record in of_model),
            closed=hopeless or self._exhausted(study, records, len(of_model)),
        )

    def _exhausted(self, study: CandidateStudy, records: Mapping[int, TrialRecord], taken: int) -> bool:
        alone = len(self._studies) == 1
        # A search of one model is a single bracket: it has ended with its winner.
        return study.exhausted(taken, repeat=alone) or (alone and study.bracket(records) > 0)


def _study_of(name: str, model: str) -> str:
    """Return the name of the Optuna study of one model of a search."""
    return f"{name}/{model}"


def remove_studies(storage: StudyStorage, name: str, models: Sequence[str]) -> None:
    """Remove the studies of a finished run; its written result keeps them from being recreated."""
    with storage.locked(name), storage.reaching():
        for model in models:
            for study in (_study_of(name, model), promotions_of(_study_of(name, model))):
                with suppress(KeyError):
                    optuna.delete_study(study_name=study, storage=storage.optuna)


def _running(study: CandidateStudy, records: Mapping[int, TrialRecord]) -> bool:
    model = study.candidate.model
    return any(record.model == model and record.state == "running" for record in records.values())


def _same_end(trial: Trial, recorded: Trial | None) -> bool:
    return recorded is not None and (recorded.state, recorded.message, recorded.steps) == (
        trial.state,
        trial.message,
        trial.steps,
    )
