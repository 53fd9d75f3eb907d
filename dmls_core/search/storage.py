"""Where a study is kept: an Optuna storage, a lock, and a heartbeat.

One worker keeps its study in memory, at a tenth of what a journal or a database costs a trial; the files of
the run's folder are what stays. Several workers share a study in PostgreSQL (``database.py``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from optuna.storages import BaseStorage, InMemoryStorage

from dmls_core.search.trial import Trial


class StudyStorage(Protocol):
    """What a search needs of a storage."""

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

        Raises:
            PlatformError: the storage does not answer, or another worker does not leave its block.
        """
        ...

    def reaching(self) -> AbstractContextManager[None]:
        """Turn what the storage's libraries raise into a ``PlatformError`` without statements and URLs."""
        ...

    def beat(self, trial_id: int) -> None:
        """Record one heartbeat of a trial."""
        ...

    def heartbeat(self, trial_id: int) -> AbstractContextManager[object]:
        """Record Optuna's heartbeat of a trial while the block runs."""
        ...

    def dump(self, trial: Trial) -> Any:  # noqa: ANN401
        """Return a trial as an attribute of Optuna's trial."""
        ...

    def load(self, value: Any) -> Trial:  # noqa: ANN401
        """Return the trial that ``dump`` wrote."""
        ...


class LocalStorage:
    """The study of a single worker, in memory."""

    shared = False

    def __init__(self) -> None:
        self.optuna: BaseStorage = InMemoryStorage()

    def locked(self, _name: str) -> AbstractContextManager[None]:
        """Do nothing; see ``StudyStorage.locked``."""
        return nullcontext()

    def reaching(self) -> AbstractContextManager[None]:
        """Do nothing; see ``StudyStorage.reaching``."""
        return nullcontext()

    def beat(self, _trial_id: int) -> None:
        """Do nothing; see ``StudyStorage.beat``."""

    def heartbeat(self, _trial_id: int) -> AbstractContextManager[object]:
        """Do nothing; see ``StudyStorage.heartbeat``."""
        return nullcontext()

    def dump(self, trial: Trial) -> Any:  # noqa: ANN401
        """Return the trial itself."""
        return trial

    def load(self, value: Any) -> Trial:  # noqa: ANN401
        """Return the trial itself."""
        trial: Trial = value
        return trial
