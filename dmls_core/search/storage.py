"""Storages of a study: Optuna's storage, a lock, and heartbeats.

A single worker keeps its study in memory, at a tenth of the cost per trial of a journal or a database; the
run's folder keeps the trials. Several workers share a study in PostgreSQL (``database.py``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from optuna.storages import BaseStorage, InMemoryStorage

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
