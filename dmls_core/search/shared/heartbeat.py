"""Signs of life of a trainer that works on a trial."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from optuna.storages import RDBStorage

from dmls_core.errors import PlatformError
from dmls_core.search.shared.database import reaching

log = logging.getLogger(__name__)


class Heartbeat:
    """Records Optuna's heartbeat from a thread of its own while the block runs.

    A database that does not answer for a while does not end the trial: the next beat may reach it.
    """

    def __init__(self, storage: RDBStorage, trial_id: int, beat: float) -> None:
        self._storage = storage
        self._trial_id = trial_id
        self._beat = beat
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dmls-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._beat):
            try:
                with reaching():
                    self._storage.record_heartbeat(self._trial_id)
            except PlatformError as error:
                log.warning("no sign of life could be given: %s", error)
        self._storage.remove_session()
