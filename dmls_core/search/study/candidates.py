"""The Optuna study of one model: its trials, and their promotions to further rungs of successive halving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from dmls_core.search.boosting.shrinkage import LEARNING_RATE, Shrinkage
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.forest.halving import REDUCTION, HalvingDecision, HalvingObjective, Promotion, Rung
from dmls_core.search.objective import ShouldPrune
from dmls_core.search.study.distributions import Distributions
from dmls_core.search.study.storage import CLAIMED, NUMBER, TRIAL, StudyStorage, TrialClaims, running
from dmls_core.search.task import grid_points
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

optuna.logging.set_verbosity(optuna.logging.WARNING)

_RUNG = "dmls:rung"
"""Attribute of a promotion: jackknife and convergence of its rung."""

_ENDED = "dmls:ended"
"""Attribute: the trial has ended and takes part in no further rung."""


class Promotions:
    """The rungs of successive halving. All methods are called under the search's lock."""

    def __init__(self, objective: HalvingObjective, storage: StudyStorage, name: str) -> None:
        self.objective = objective
        self._storage = storage
        self._study = optuna.create_study(
            storage=storage.optuna,
            study_name=name,
            sampler=optuna.samplers.RandomSampler(),
            load_if_exists=True,
        )
        self.claims = TrialClaims(self._study, storage)

    def decide(self, first: Sequence[Trial], *, late: bool) -> HalvingDecision:
        """Return the decision that follows from the rungs so far; see ``SuccessiveHalving.decide``."""
        rungs: dict[int, list[Rung]] = {}
        for trial in self.claims.trials():
            if _RUNG in trial.user_attrs and trial.state == TrialState.COMPLETE:
                jackknife, converged, alone = trial.user_attrs[_RUNG]
                rung = Rung(self._storage.load(trial.user_attrs[TRIAL]), tuple(jackknife), converged, alone)
                rungs.setdefault(rung.trial.number, []).append(rung)
        return self.objective.halving.decide(first, rungs, late=late)

    def unclaimed(self, decision: HalvingDecision) -> list[Promotion]:
        """Return promotions that no worker runs; first those whose forests this worker holds."""
        taken = {trial.user_attrs[NUMBER] for trial in self.claims.trials() if running(trial)}
        held = self.objective.held()
        free = [one for one in decision.promotions if one.first.number not in taken]
        return sorted(free, key=lambda one: one.first.number not in held)

    def claim(self, promotion: Promotion) -> optuna.Trial:
        """Take a promotion."""
        self._study.enqueue_trial({}, user_attrs={NUMBER: promotion.first.number})
        asked = self._study.ask({})
        self.claims.add(asked)
        return asked

    def finish(self, asked: optuna.Trial, rung: Rung) -> None:
        """End a claimed promotion."""
        asked.set_user_attr(TRIAL, self._storage.dump(rung.trial))
        asked.set_user_attr(_RUNG, [list(rung.jackknife), rung.converged, rung.alone])
        self._study.tell(asked, rung.trial.intermediate_values[-1])

    def end(self, trial: Trial) -> None:
        """Record that a trial takes part in no further rung."""
        attributes = {NUMBER: trial.number, _ENDED: True, TRIAL: self._storage.dump(trial)}
        self._study.add_trial(
            create_trial(state=TrialState.COMPLETE, value=trial.value, user_attrs=attributes)
        )

    def ended(self) -> dict[int, Trial]:
        """Return the trials that take part in no further rung, by number."""
        return {
            trial.user_attrs[NUMBER]: self._storage.load(trial.user_attrs[TRIAL])
            for trial in self.claims.trials()
            if trial.user_attrs.get(_ENDED)
        }


def promotions_of(name: str) -> str:
    """Return the name of the study that holds a study's promotions."""
    return f"{name}/promotions"


_OPTUNA_STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """The study's record of one trial number of the run.

    ``state`` is Optuna's state, or ``stale`` if the heartbeat of the worker has expired. ``params`` are
    encoded for Optuna; ``trial`` is ``None`` until the trial has ended.
    """

    number: int
    model: str
    state: Literal["running", "stale", "complete", "pruned", "failed"]
    params: Mapping[str, Any]
    trial: Trial | None = None

    @property
    def value(self) -> float | None:
        """The score, if the trial has one."""
        return self.trial.value if self.trial else None


class CandidateStudy:
    """The trials of one model. All methods but ``should_prune`` are called under the search's lock.

    ``promotions`` holds the rungs of successive halving; it is ``None`` for models without it.
    """

    def __init__(self, candidate: ModelCandidate, storage: StudyStorage, name: str) -> None:
        self.candidate = candidate
        self.objective = candidate.objective
        self._storage = storage
        self._distributions = Distributions(self.objective.suggested)
        self._grid = candidate.grid
        self._points = grid_points(self.objective.suggested, candidate.task.seed) if self._grid else iter(())
        self._known_points: list[dict[str, Scalar]] = []
        suggested = self.objective.suggested
        # A portfolio leaves the learning rate to the rule. A spec may search it nevertheless.
        task = candidate.task
        rate = {LEARNING_RATE: Shrinkage.of(len(task.truth), task.n_classes, task.model.family).rate}
        portfolio = candidate.task.model.portfolio if candidate.strategy.portfolio else ()
        points = [{**rate, **params} for params in portfolio]
        if candidate.warm_start:
            points.insert(0, dict(candidate.warm_start))
        self._portfolio: list[dict[str, Scalar]] = []
        for point in points if suggested.searched else ():
            if suggested.contains(point):
                searched = {name: point[name] for name in suggested.searched}
                self._portfolio += [searched] if searched not in self._portfolio else []
        self._records: dict[int, TrialRecord] = {}
        self._identities: dict[int, str] = {}
        direction = candidate.task.direction
        self.study = optuna.create_study(
            storage=storage.optuna,
            study_name=name,
            direction=direction,
            # Grid points are enqueued: nothing is left to sample.
            sampler=optuna.samplers.RandomSampler(seed=candidate.task.seed),
            pruner=candidate.strategy.pruner(),
            load_if_exists=True,
        )
        self.claims = TrialClaims(self.study, storage)
        self.promotions = (
            Promotions(self.objective, storage, promotions_of(name))
            if isinstance(self.objective, HalvingObjective)
            else None
        )

    def records(self) -> dict[int, TrialRecord]:
        """Return the latest record of each trial number; raise ``KeyError`` if the study is gone."""
        records: dict[int, TrialRecord] = {}
        for trial in self.claims.trials():
            number = trial.user_attrs.get(NUMBER)
            if number is not None:
                records[number] = self._record(number, trial)
        for number, ended in self.promotions.ended().items() if self.promotions else ():
            records[number] = replace(records[number], state=ended.state, trial=ended)
        return records

    def exhausted(self, taken: int, *, repeat: bool) -> bool:
        """Return whether there is nothing left to suggest after ``taken`` trials of this model.

        With ``repeat``, a model under successive halving starts its grid again: repeated trials cost nothing.
        """
        repeats = repeat and self.promotions and self.objective.suggested.searched
        return not repeats and self.candidate.exhausted(taken)

    def claim(self, number: int, position: int, stale: TrialRecord | None) -> optuna.Trial:
        """Take a new trial, or a stale one with its hyperparameters.

        ``position`` is the number of trials of this model with smaller numbers.
        """
        params: Mapping[str, Any] = stale.params if stale else {}
        if not params and self._grid:
            point = self._grid_point(position) or self._known_points[position % len(self._known_points)]
            params = self._distributions.encode(point)
        elif not params and position < len(self._portfolio):
            params = self._distributions.encode(self._portfolio[position])
        asked = self._ask(number, params)
        self.claims.add(asked)
        return asked

    def adopt(self, trial: Trial) -> None:
        """Add a trial of an earlier attempt; sampler and pruner see the same history as then."""
        encoded = self._distributions.encode(trial.params)
        # Asked again, the sampler makes the same suggestion.
        repeat = self.candidate.strategy.stateful
        asked = self._ask(trial.number, {} if repeat else encoded)
        if asked.params != encoded:
            self.study.tell(asked, state=TrialState.FAIL)
            asked = self._ask(trial.number, encoded)
        asked.set_user_attr(CLAIMED, True)
        self.finish(asked, trial, again=True)

    def params(self, asked: optuna.Trial) -> dict[str, Scalar]:
        """Return the suggested hyperparameters as values of the spec."""
        return self._distributions.decode(asked.params)

    def should_prune(self, asked: optuna.Trial) -> ShouldPrune:
        """Return the callback by which an objective reports its steps."""

        def callback(steps: int, score: float) -> bool:
            with self._storage.reaching():
                return _report(asked, steps, score)

        return callback

    def finish(self, asked: optuna.Trial, trial: Trial, *, again: bool = False) -> None:
        """End a claimed trial; report its steps if it is added ``again``.

        Under successive halving, Optuna's sampler sees every trial by its score on the first rung, where all
        have equally many trees.
        """
        asked.set_user_attr(TRIAL, self._storage.dump(trial))
        if self.promotions and trial.state != "failed":
            self.study.tell(asked, trial.intermediate_values[0])
            return
        if again or trial.same_as is not None:
            for steps, score in enumerate(trial.intermediate_values, start=1):
                _report(asked, steps, score)
        value = trial.value if trial.state == "complete" else None
        self.study.tell(asked, value, _OPTUNA_STATES[trial.state])

    def same_as(self, params: Mapping[str, Scalar], records: Mapping[int, TrialRecord]) -> Trial | None:
        """Return the first trial whose hyperparameters are the same to the engine."""
        identity = self.objective.identity(params)
        for number, record in sorted(records.items()):
            if record.trial is None or record.model != self.candidate.model:
                continue
            if number not in self._identities:
                self._identities[number] = self.objective.identity(self._distributions.decode(record.params))
            if self._identities[number] == identity:
                return record.trial
        return None

    def bracket(self, records: Mapping[int, TrialRecord]) -> int:
        """Return the bracket of successive halving that new trials join; 0 for other models."""
        if not self.promotions:
            return 0
        trials = self._trials_of(records)
        last = max((trial.bracket for trial in trials), default=0)
        return last + any(trial.bracket == last and _won(trial) for trial in trials)

    def pending(self, records: Mapping[int, TrialRecord]) -> list[Trial]:
        """Return the trials of the open bracket that await its decision, repeated ones included."""
        if not self.promotions:
            return []
        bracket = self.bracket(records)
        waiting = [t for t in self._trials_of(records) if t.bracket == bracket and t.state != "failed"]
        return waiting if any(trial.same_as is None for trial in waiting) else []

    def _record(self, number: int, trial: FrozenTrial) -> TrialRecord:
        recorded = self._records.get(trial.number)
        if recorded:
            return recorded
        model = self.candidate.model
        if TRIAL in trial.user_attrs and trial.state.is_finished():
            ended = self._storage.load(trial.user_attrs[TRIAL])
            record = TrialRecord(number, model, ended.state, trial.params, ended)
            self._records[trial.number] = record
            return record
        return TrialRecord(number, model, "running" if running(trial) else "stale", trial.params)

    def _trials_of(self, records: Mapping[int, TrialRecord]) -> list[Trial]:
        model = self.candidate.model
        return [r.trial for _, r in sorted(records.items()) if r.model == model and r.trial]

    def _ask(self, number: int, params: Mapping[str, Any]) -> optuna.Trial:
        if not self._grid:
            self.study.sampler = self.candidate.strategy.sampler(self.candidate.task.seed, number)
        self.study.enqueue_trial(dict(params), user_attrs={NUMBER: number})
        return self.study.ask(self._distributions.of)

    def _grid_point(self, position: int) -> dict[str, Scalar] | None:
        missing = position + 1 - len(self._known_points)
        self._known_points += islice(self._points, max(0, missing))
        return self._known_points[position] if position < len(self._known_points) else None


def _report(trial: optuna.Trial, steps: int, value: float) -> bool:
    """Report a trial's score after ``steps`` steps; return whether to prune the trial.

    Each step is one rung of successive halving; Optuna's rungs are powers of the reduction factor.
    """
    trial.report(value, REDUCTION ** (steps - 1))
    return trial.should_prune()


def _won(trial: Trial) -> bool:
    return trial.state == "complete" and trial.same_as is None


def scored_values(trials: Sequence[Trial]) -> tuple[float | None, ...]:
    """Return the score of each trial that counts towards ``n_trials``; ``None`` for pruned trials."""
    return tuple(t.value if t.state == "complete" else None for t in trials if t.state != "failed")
