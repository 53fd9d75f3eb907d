"""The PostgreSQL database in which workers share a study: Optuna's tables, a lock, and heartbeats."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Self

import sqlalchemy
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage

from dmls_core.errors import PlatformError
from dmls_core.search.trial import Trial

log = logging.getLogger(__name__)

_DRIVER = "postgresql+psycopg"

_HEARTBEAT_INTERVAL = 10
"""Seconds between two heartbeats of a running trial."""

_GRACE_PERIOD = 60
"""Seconds without a heartbeat after which another worker takes over the trial."""

_LOCK_SECONDS = 300
"""Maximum seconds to wait for another worker that claims or ends a trial."""

_LOCKS = 0x646D6C73
"""Class of DMLS's advisory locks, which no other program in the database uses."""

_SESSION = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
"""Session settings by which the server notices that a machine is gone, and frees its locks."""

# Optuna's heartbeat is meant for Study.optimize; here ``Heartbeat`` records it.
warnings.filterwarnings("ignore", message=".*heartbeat_interval.*", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message=".*fail_stale_trials.*", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with")


class StudyDatabase:
    """Optuna's storage on PostgreSQL; see ``StudyStorage``.

    ``url`` is ``postgresql+psycopg://user:password@host:port/database``; no message contains it. A trial is
    stale after ``grace_period`` seconds without a heartbeat.

    Raises:
        PlatformError: ``url`` is not a PostgreSQL URL, or the database does not answer.
    """

    shared = True

    def __init__(
        self, url: str, *, heartbeat_interval: int = _HEARTBEAT_INTERVAL, grace_period: int = _GRACE_PERIOD
    ) -> None:
        try:
            address = sqlalchemy.make_url(url)
        except sqlalchemy.exc.ArgumentError:
            address = None
        if address is None or address.get_backend_name() != "postgresql":
            raise PlatformError(f"the URL of the study database must be PostgreSQL's: {_DRIVER}://...")
        self._interval = heartbeat_interval
        full_address = address.set(drivername=_DRIVER)
        # Each lock has its own connection, so that it is free as soon as its holder is gone.
        self._locks = sqlalchemy.create_engine(
            full_address,
            poolclass=sqlalchemy.NullPool,
            connect_args={"options": _SESSION, "connect_timeout": 30},
        )
        with self.locked("tables"), reaching():
            try:
                self.optuna = RDBStorage(
                    full_address.render_as_string(hide_password=False),
                    engine_kwargs={
                        "pool_size": 2,
                        "pool_pre_ping": True,
                        "connect_args": {"connect_timeout": 30},
                    },
                    heartbeat_interval=heartbeat_interval,
                    grace_period=grace_period,
                )
            except RuntimeError as error:
                raise PlatformError(
                    f"the study database has the tables of another release of Optuna: {error}"
                ) from error

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Take PostgreSQL's advisory lock; see ``StudyStorage.locked``."""
        with reaching(), self._locks.begin() as connection:
            connection.execute(sqlalchemy.text(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'"))
            connection.execute(
                sqlalchemy.text("SELECT pg_advisory_xact_lock(:locks, hashtext(:name))"),
                {"locks": _LOCKS, "name": name},
            )
            yield

    def reaching(self) -> AbstractContextManager[None]:
        """See ``StudyStorage.reaching``."""
        return reaching()

    def beat(self, trial_id: int) -> None:
        """See ``StudyStorage.beat``."""
        self.optuna.record_heartbeat(trial_id)

    def heartbeat(self, trial_id: int) -> AbstractContextManager[object]:
        """See ``StudyStorage.heartbeat``."""
        return Heartbeat(self.optuna, trial_id, self._interval)

    def dump(self, trial: Trial) -> Any:  # noqa: ANN401
        """Return the trial's JSON."""
        return trial.as_json()

    def load(self, value: Any) -> Trial:  # noqa: ANN401
        """Read a trial's JSON."""
        return Trial.from_json(value)

    def close(self) -> None:
        """Close all connections."""
        self.optuna.remove_session()
        self.optuna.engine.dispose()
        self._locks.dispose()


class Heartbeat:
    """Records Optuna's heartbeat from a thread while the block runs.

    A failed heartbeat does not end the trial: the next one may reach the database.
    """

    def __init__(self, storage: RDBStorage, trial_id: int, interval: float) -> None:
        self._storage = storage
        self._trial_id = trial_id
        self._interval = interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dmls-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._interval):
            try:
                with reaching():
                    self._storage.record_heartbeat(self._trial_id)
            except PlatformError as error:
                log.warning("the heartbeat failed: %s", error)
        self._storage.remove_session()


@contextmanager
def reaching() -> Iterator[None]:
    """Raise errors of the database's libraries as ``PlatformError``, without statements and URLs."""
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError) as error:
        cause = getattr(error, "orig", None) or error.__cause__
        cause = getattr(cause, "orig", None) or cause or error
        reason = (str(cause).strip().splitlines() or [""])[0]
        raise PlatformError(f"the study database failed: {type(cause).__name__}: {reason}") from None
