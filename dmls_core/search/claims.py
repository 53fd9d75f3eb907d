"""Claimed trials of an Optuna study: which trials are a worker's, and which lost theirs."""

from __future__ import annotations

import optuna
from optuna.trial import FrozenTrial, TrialState

from dmls_core.search.storage import StudyStorage

NUMBER = "dmls:number"
"""Attribute of an Optuna trial: number of the trial in the run. A number that was taken over has several."""

CLAIMED = "dmls:claimed"
"""Attribute: the first heartbeat is recorded, so that the trial is missed if its worker dies."""

TRIAL = "dmls:trial"
"""Attribute: the whole trial, once it has ended."""


class TrialClaims:
    """The trials of an Optuna study that workers claim. All methods are called under the search's lock.

    Args:
        study: Optuna's study.
        storage: where it is kept.
    """

    def __init__(self, study: optuna.Study, storage: StudyStorage) -> None:
        self._study = study
        self._storage = storage
        self._id = storage.optuna.get_study_id_from_name(study.study_name)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials, after ending those of dead workers.

        A worker marks the trial that it claims before it leaves the lock: a waiting or running trial without
        the mark lost its worker in between.

        Raises:
            KeyError: the study is gone.
        """
        if self._storage.shared:
            optuna.storages.fail_stale_trials(self._study)
            for trial in self._study.get_trials(deepcopy=False):
                if not trial.state.is_finished() and not trial.user_attrs.get(CLAIMED):
                    self._storage.optuna.set_trial_state_values(self.id_of(trial.number), TrialState.FAIL)
        return self._study.get_trials(deepcopy=False)

    def mark(self, asked: optuna.Trial) -> None:
        """Mark a trial as claimed."""
        # In this order: a marked trial is missed as soon as there are no heartbeats.
        if self._storage.shared:
            self._storage.beat(self.id_of(asked.number))
        asked.set_user_attr(CLAIMED, True)

    def id_of(self, number: int) -> int:
        """Return the id under which Optuna's storage keeps a trial."""
        return self._storage.optuna.get_trial_id_from_study_id_trial_number(self._id, number)

    def owned(self, asked: optuna.Trial) -> bool:
        """Return whether a claimed trial is still the caller's, and not taken over."""
        return self._storage.optuna.get_trial(self.id_of(asked.number)).state == TrialState.RUNNING

    def release(self, asked: optuna.Trial) -> None:
        """Leave a claimed trial that has not ended to other workers."""
        if self.owned(asked):
            self._study.tell(asked, state=TrialState.FAIL)


def running(trial: FrozenTrial) -> bool:
    """Return whether a worker runs a trial."""
    return bool(trial.state == TrialState.RUNNING and trial.user_attrs.get(CLAIMED))
