"""The Optuna study of one model's promotions: each rung of a trial is an Optuna trial with heartbeats."""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.trial import TrialState, create_trial

from dmls_core.search.claims import NUMBER, TRIAL, TrialClaims, running
from dmls_core.search.forest.halving import Decision, Promotion, Rung
from dmls_core.search.objective import HalvingObjective
from dmls_core.search.storage import StudyStorage
from dmls_core.search.trial import Trial

RUNG = "dmls:rung"
"""Attribute of a promotion: jackknife and convergence of its rung."""

ENDED = "dmls:ended"
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

    def decide(self, first: Sequence[Trial], *, late: bool) -> Decision:
        """Return the decision that follows from the rungs so far; see ``SuccessiveHalving.decide``."""
        rungs: dict[int, list[Rung]] = {}
        for trial in self.claims.trials():
            if RUNG in trial.user_attrs and trial.state == TrialState.COMPLETE:
                jackknife, converged, alone = trial.user_attrs[RUNG]
                rung = Rung(self._storage.load(trial.user_attrs[TRIAL]), tuple(jackknife), converged, alone)
                rungs.setdefault(rung.trial.number, []).append(rung)
        return self.objective.halving.decide(first, rungs, late=late)

    def unclaimed(self, decision: Decision) -> list[Promotion]:
        """Return promotions that no worker runs; first those whose forests this worker holds."""
        taken = {trial.user_attrs[NUMBER] for trial in self.claims.trials() if running(trial)}
        held = self.objective.held()
        free = [one for one in decision.promotions if one.first.number not in taken]
        return sorted(free, key=lambda one: one.first.number not in held)

    def claim(self, promotion: Promotion) -> optuna.Trial:
        """Take a promotion."""
        self._study.enqueue_trial({}, user_attrs={NUMBER: promotion.first.number})
        asked = self._study.ask({})
        self.claims.mark(asked)
        return asked

    def finish(self, asked: optuna.Trial, rung: Rung) -> None:
        """End a claimed promotion."""
        asked.set_user_attr(TRIAL, self._storage.dump(rung.trial))
        asked.set_user_attr(RUNG, [list(rung.jackknife), rung.converged, rung.alone])
        self._study.tell(asked, rung.trial.intermediate_values[-1])

    def end(self, trial: Trial) -> None:
        """Record that a trial takes part in no further rung."""
        attributes = {NUMBER: trial.number, ENDED: True, TRIAL: self._storage.dump(trial)}
        self._study.add_trial(
            create_trial(state=TrialState.COMPLETE, value=trial.value, user_attrs=attributes)
        )

    def ended(self) -> dict[int, Trial]:
        """Return the trials that take part in no further rung, by number."""
        return {
            trial.user_attrs[NUMBER]: self._storage.load(trial.user_attrs[TRIAL])
            for trial in self.claims.trials()
            if trial.user_attrs.get(ENDED)
        }


def promotions_of(name: str) -> str:
    """Return the name of the study that holds a study's promotions."""
    return f"{name}/promotions"
