"""One model's Optuna study in a database: how its trials are suggested, told and given up."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.grid import grid_points
from dmls_core.search.objective import ShouldPrune
from dmls_core.search.shared.database import reaching
from dmls_core.search.shared.slots import (
    CLAIMED,
    NUMBER,
    REFUSED,
    SAME_AS,
    SECONDS,
    TrialRecord,
    read_records,
)
from dmls_core.search.strategies import REDUCTION
from dmls_core.search.study import STATES, distribution_of, make_pruner, make_sampler, reported, words_of
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar


class SharedSuggestions:
    """The study of one candidate. Every method but ``should_prune`` is to be called under the run's lock.

    Args:
        candidate: the model.
        storage: Optuna's storage.
        name: the study's name; it is made if there is none.
    """

    def __init__(self, candidate: ModelCandidate, storage: RDBStorage, name: str) -> None:
        self.candidate = candidate
        self.name = name
        self.space = candidate.evaluator.suggested(candidate.space)
        self._storage = storage
        self._words = {name: words_of(wanted) for name, wanted in self.space.searched.items()}
        self._distributions = {
            name: distribution_of(wanted, self._words[name]) for name, wanted in self.space.searched.items()
        }
        self._study = optuna.create_study(
            storage=storage,
            study_name=name,
            direction=candidate.task.direction,
            pruner=make_pruner(candidate.plan),
            load_if_exists=True,
        )
        self._id = storage.get_study_id_from_name(name)

    def slots(self) -> dict[int, TrialRecord]:
        """Return what has become of each of the candidate's numbers; trials of dead trainers are ended first.

        Raises:
            KeyError: the study is gone.
        """
        optuna.storages.fail_stale_trials(self._study)
        trials = self._study.get_trials(deepcopy=False)
        for trial in trials:
            if not trial.state.is_finished() and not trial.user_attrs.get(CLAIMED):
                self._end(trial, TrialState.FAIL)
        return read_records(self.candidate.model, trials)

    def exhausted(self, taken: int) -> bool:
        """Say whether there is no suggestion for an candidate of which ``taken`` trials are taken."""
        if not self.space.searched:
            return taken > 0
        return self.candidate.plan.sampler == "grid" and self._grid_point(taken) is None

    def claim(self, number: int, position: int, lost: TrialRecord | None) -> optuna.Trial:
        """Take a trial: a new one, or one whose trainer is gone, with its hyperparameters.

        Args:
            number: its number in the run.
            position: how many numbers of this candidate are smaller.
            lost: what is known of the number, if it was somebody's.
        """
        given: Mapping[str, Any] = lost.params if lost else {}
        if not given and self.candidate.plan.sampler == "grid":
            given = self._encode(self._grid_point(position) or {})
        seed = int(np.random.SeedSequence([self.candidate.task.seed, number]).generate_state(1)[0])
        self._study.sampler = make_sampler(self.candidate.plan, seed, together=True)
        self._study.enqueue_trial(dict(given), user_attrs={NUMBER: number})
        asked = self._study.ask(self._distributions)
        # In this order: a trial that is marked is missed as soon as there are no signs of life.
        self._storage.record_heartbeat(self.trial_id(asked))
        asked.set_user_attr(CLAIMED, True)
        return asked

    def trial_id(self, asked: optuna.Trial) -> int:
        """Return the id under which the storage keeps a trial."""
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, asked.number)

    def params(self, asked: optuna.Trial) -> dict[str, Scalar]:
        """Return what was suggested, as the spec writes it."""
        return self.decode(asked.params)

    def decode(self, words: Mapping[str, Any]) -> dict[str, Scalar]:
        """Return the spec's values of what Optuna calls them."""
        return {name: self._words[name].get(str(word), word) for name, word in words.items()}

    def should_prune(self, asked: optuna.Trial) -> ShouldPrune:
        """Return what says whether a trial is worth going on with."""

        def ask(steps: int, score: float) -> bool:
            with reaching():
                return reported(asked, steps, score)

        return ask

    def holds(self, asked: optuna.Trial) -> bool:
        """Say whether the trial is still the caller's: nobody has taken him for dead."""
        return self._storage.get_trial(self.trial_id(asked)).state == TrialState.RUNNING

    def tell(self, asked: optuna.Trial, outcome: Trial) -> None:
        """End a claimed trial."""
        if outcome.same_as is not None:
            for steps, score in enumerate(outcome.intermediate_values, start=1):
                reported(asked, steps, score)
            asked.set_user_attr(SAME_AS, outcome.same_as)
        asked.set_user_attr(SECONDS, outcome.seconds)
        if outcome.state == "failed":
            asked.set_user_attr(REFUSED, True)
        value = outcome.value if outcome.state == "complete" else None
        self._study.tell(asked, value, STATES[outcome.state])

    def release(self, asked: optuna.Trial) -> None:
        """Leave a claimed trial to others."""
        if self.holds(asked):
            self._study.tell(asked, state=TrialState.FAIL)

    def adopt(self, trial: Trial) -> None:
        """Take up a trial that is kept but that the study does not know."""
        params = self._encode({name: trial.params[name] for name in self._distributions})
        intermediate_values = {REDUCTION**step: score for step, score in enumerate(trial.intermediate_values)}
        self._study.add_trial(
            optuna.trial.create_trial(
                state=STATES[trial.state],
                value=trial.value if trial.state == "complete" else None,
                params=params,
                distributions=self._distributions,
                intermediate_values=intermediate_values,
                user_attrs={
                    NUMBER: trial.number,
                    CLAIMED: True,
                    REFUSED: trial.state == "failed",
                    SECONDS: trial.seconds,
                    SAME_AS: trial.same_as,
                },
            )
        )

    def note(self, key: str, value: object) -> None:
        """Keep something with the study."""
        self._study.set_user_attr(key, value)

    def noted(self, key: str) -> object:
        """Return what ``note`` kept."""
        return self._study.user_attrs.get(key)

    def _end(self, trial: FrozenTrial, state: TrialState) -> None:
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)
        self._storage.set_trial_state_values(trial_id, state)

    def _encode(self, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {name: repr(value) if self._words[name] else value for name, value in params.items()}

    def _grid_point(self, position: int) -> dict[str, Scalar] | None:
        return next(islice(grid_points(self.space, self.candidate.task.seed), position, None), None)
