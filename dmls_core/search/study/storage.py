"""Storages of a study, and the claims of workers on its trials.

A single worker keeps its study in memory, at a tenth of the cost per trial of a journal or a database; the
run's folder keeps the trials. Several workers share a study in PostgreSQL (``database.py``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import optuna
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from dmls_core.search.trial import Trial


class StudyStorage(Protocol):
    """The interface that a search needs of a storage."""

    @property
    def optuna(self) -> BaseStorage:
        """Optuna's storage."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other workers may use it at the same time."""
        ...

    def locked(self, name: str) -> AbstractContextManager[None]:
        """Keep all other workers out of the blocks with this name.

        Raise ``PlatformError`` if the storage does not answer, or another worker does not leave its block.
        """
        ...

    def reaching(self) -> AbstractContextManager[None]:
        """Raise errors of the storage's libraries as ``PlatformError``, without statements and URLs."""
        ...

    def beat(self, trial_id: int) -> None:
        """Record one heartbeat of a trial."""
        ...

    def heartbeat(self, trial_id: int) -> AbstractContextManager[object]:
        """Record Optuna's heartbeat of a trial while the block runs."""
        ...

    def dump(self, trial: Trial) -> Any:  # noqa: ANN401
        """Return a trial in the form of an attribute of Optuna's trial."""
        ...

    def load(self, value: Any) -> Trial:  # noqa: ANN401
        """Return the trial that ``dump`` has written."""
        ...


class LocalStorage:
    """The study of a single worker, in memory; see ``StudyStorage``."""

    shared = False

    def __init__(self) -> None:
        self.optuna: BaseStorage = InMemoryStorage()

    def locked(self, _name: str) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def reaching(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def beat(self, _trial_id: int) -> None:
        """Do nothing."""

    def heartbeat(self, _trial_id: int) -> AbstractContextManager[object]:
        """Do nothing."""
        return nullcontext()

    def dump(self, trial: Trial) -> Any:  # noqa: ANN401
        """Return the trial itself."""
        return trial

    def load(self, value: Any) -> Trial:  # noqa: ANN401
        """Return the trial itself."""
        trial: Trial = value
        return trial


NUMBER = "dmls:number"
"""Attribute of an Optuna trial: the trial's number in the run. A number that was taken over has several."""

CLAIMED = "dmls:claimed"
"""Attribute: the first heartbeat is recorded, so the trial becomes stale if its worker dies."""

TRIAL = "dmls:trial"
"""Attribute: the whole trial, once it has ended."""


class TrialClaims:
    """The trials of an Optuna study that workers claim. All methods are called under the search's lock."""

    def __init__(self, study: optuna.Study, storage: StudyStorage) -> None:
        self._study = study
        self._storage = storage
        self._id = storage.optuna.get_study_id_from_name(study.study_name)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials, after failing those of dead workers; raise ``KeyError`` if the study is gone.

        A worker marks its trial as claimed before it leaves the lock. A waiting or running trial without the
        attribute therefore lost its worker in between.
        """
        if self._storage.shared:
            optuna.storages.fail_stale_trials(self._study)
            for trial in self._study.get_trials(deepcopy=False):
                if not trial.state.is_finished() and not trial.user_attrs.get(CLAIMED):
                    self._storage.optuna.set_trial_state_values(self.id_of(trial.number), TrialState.FAIL)
        return self._study.get_trials(deepcopy=False)

    def add(self, asked: optuna.Trial) -> None:
        """Mark a trial as claimed."""
        # In this order: a claimed trial without heartbeats counts as stale.
        if self._storage.shared:
            self._storage.beat(self.id_of(asked.number))
        asked.set_user_attr(CLAIMED, True)

    def id_of(self, number: int) -> int:
        """Return the id of a trial in Optuna's storage."""
        return self._storage.optuna.get_trial_id_from_study_id_trial_number(self._id, number)

    def owned(self, asked: optuna.Trial) -> bool:
        """Return whether the caller still owns a claimed trial."""
        return self._storage.optuna.get_trial(self.id_of(asked.number)).state == TrialState.RUNNING

    def release(self, asked: optuna.Trial) -> None:
        """Leave a claimed trial to other workers, unless it has ended."""
        if self.owned(asked):
            self._study.tell(asked, state=TrialState.FAIL)


def running(trial: FrozenTrial) -> bool:
    """Return whether a worker runs a trial."""
    return bool(trial.state == TrialState.RUNNING and trial.user_attrs.get(CLAIMED))
