"""The database over which trainers share a study: Optuna's tables in PostgreSQL, and a lock."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage

from dmls_core.errors import PlatformError

DRIVER = "postgresql+psycopg"

BEAT = 10
"""Seconds between two signs of life of a trainer that works on a trial."""

GRACE = 60
"""Seconds without a sign of life after which a trial is taken over."""

LOCK_SECONDS = 300
"""Longest wait for another trainer that chooses or keeps a trial."""

LOCKS = 0x646D6C73
"""The class of DMLS's advisory locks, which no other program in the database uses."""

SESSION = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
"""Settings by which the server misses a machine that is gone, and frees its locks."""

# Optuna's heartbeat is meant for Study.optimize; here it is recorded by ``Heartbeat``.
warnings.filterwarnings("ignore", message=".*heartbeat_interval.*", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message=".*fail_stale_trials.*", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with")


class StudyDatabase:
    """Optuna's storage on PostgreSQL.

    Args:
        url: ``postgresql+psycopg://user:password@host:port/database``; it is in no message.
        beat: seconds between two signs of life.
        grace: seconds without one after which a trial is taken over.

    Raises:
        PlatformError: it is no such URL, or the database does not answer.
    """

    def __init__(self, url: str, *, beat: int = BEAT, grace: int = GRACE) -> None:
        try:
            address = sqlalchemy.make_url(url)
        except sqlalchemy.exc.ArgumentError:
            address = None
        if address is None or address.get_backend_name() != "postgresql":
            raise PlatformError(
                f"the address of the study database must begin with {DRIVER}://: it is PostgreSQL's"
            )
        self.beat = beat
        whole = address.set(drivername=DRIVER)
        # A connection of its own for each lock: it is free for others as soon as its holder is gone.
        self._locks = sqlalchemy.create_engine(
            whole, poolclass=sqlalchemy.NullPool, connect_args={"options": SESSION, "connect_timeout": 30}
        )
        with self.locked("tables"), reaching():
            try:
                self.storage = RDBStorage(
                    whole.render_as_string(hide_password=False),
                    engine_kwargs={
                        "pool_size": 2,
                        "pool_pre_ping": True,
                        "connect_args": {"connect_timeout": 30},
                    },
                    heartbeat_interval=beat,
                    grace_period=grace,
                )
            except RuntimeError as error:
                raise PlatformError(
                    f"the study database has the tables of another release of Optuna: {error}"
                ) from error

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep all other trainers out of the blocks that have this name.

        Raises:
            PlatformError: the database does not answer, or another trainer does not leave its block.
        """
        with reaching(), self._locks.begin() as connection:
            connection.execute(sqlalchemy.text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
            connection.execute(
                sqlalchemy.text("SELECT pg_advisory_xact_lock(:locks, hashtext(:name))"),
                {"locks": LOCKS, "name": name},
            )
            yield

    def close(self) -> None:
        """Close all connections."""
        self.storage.remove_session()
        self.storage.engine.dispose()
        self._locks.dispose()


@contextmanager
def reaching() -> Iterator[None]:
    """Turn what the database's libraries raise into an error without statements and addresses.

    Raises:
        PlatformError: the database does not answer, or refuses a statement.
    """
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError) as error:
        cause = getattr(error, "orig", None) or error.__cause__
        cause = getattr(cause, "orig", None) or cause or error
        reason = (str(cause).strip().splitlines() or [""])[0]
        raise PlatformError(f"the study database failed: {type(cause).__name__}: {reason}") from None
