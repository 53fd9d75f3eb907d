"""The rows of all jobs, kept fresh by a thread as long as somebody looks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from airflow.utils.session import create_session
from sqlalchemy.exc import SQLAlchemyError

from dmls_core.errors import DmlsError
from dmls_core.web.backend import bundle_name, open_store
from dmls_core.web.index.merge import merge
from dmls_core.web.index.row import JobRow
from dmls_core.web.index.scheduled import ScheduledJobs, bundle_version
from dmls_core.web.index.served import served_versions
from dmls_core.web.index.stored import StoredJobs

log = logging.getLogger(__name__)

REST = 2.0
"""Least seconds between two refreshes."""

SHARE = 4
"""A refresh is followed by a pause this many times as long, so that a large platform is not kept busy."""

BREATH = 0.5
"""Seconds between the first rows and the rest."""

IDLE = 300.0
"""Seconds without a look after which the thread ends; the next look starts it again."""

FIRST_SECONDS = 10.0
"""Longest wait for the first rows."""


@dataclass(frozen=True, slots=True)
class View:
    """The rows as they were last read.

    Attributes:
        rows: by team and name.
        complete: whether the answers to all drops were read once; until then states are missing.
        troubles: the services that did not answer, and why; their columns are as of before.
    """

    rows: tuple[JobRow, ...] = ()
    complete: bool = False
    troubles: tuple[str, ...] = ()


class JobIndex:
    """Reads all jobs again and again, in a thread of its own."""

    def __init__(self) -> None:
        self._view = View()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._looked = 0.0
        self._first = threading.Event()
        self._again = threading.Event()
        self._scheduled = ScheduledJobs()
        self._served: dict[str, int] = {}

    def begin(self) -> None:
        """Begin to read, before somebody looks; as after a look, it ends by itself."""
        self._looked = time.monotonic()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="dmls-job-index", daemon=True)
                self._thread.start()

    def look(self, *, again: bool = False) -> View:
        """Return the rows as of the last refresh; wait for the first one of all.

        Args:
            again: something has just been changed: refresh at once.
        """
        self.begin()
        if again:
            self._again.set()
        self._first.wait(FIRST_SECONDS)
        return self._view

    def _run(self) -> None:
        stored: StoredJobs | None = None
        while time.monotonic() - self._looked < IDLE:
            began = time.monotonic()
            self._again.clear()
            try:
                stored = stored or StoredJobs(open_store())
                self._refresh(stored)
            except Exception:
                log.exception("the table of jobs could not be refreshed")
                self._view = replace(self._view, troubles=("DMLS: see the API server's log",))
            self._first.set()
            self._again.wait(max(REST, SHARE * (time.monotonic() - began)))

    def _refresh(self, stored: StoredJobs) -> None:
        if not stored.records:
            # The least that makes rows: one object.
            troubles = self._attempt("the store", lambda: self._read_snapshot(stored))
            self._show(stored, self._view.complete, troubles)
            # Threads share one interpreter: who waited for these rows is answered before the rest is read.
            self._again.wait(BREATH)
        troubles = self._attempt("Airflow's database", self._read_airflow)
        troubles += self._attempt("Triton", self._read_triton)
        if not self._view.complete:
            self._show(stored, False, troubles)  # to read all answers takes a while
        store_troubles = self._attempt("the store", stored.refresh)
        self._show(stored, self._view.complete or not store_troubles, [*troubles, *store_troubles])

    def _show(self, stored: StoredJobs, complete: bool, troubles: list[str]) -> None:
        rows = merge(stored, self._scheduled, self._served)
        self._view = View(rows, complete, tuple(troubles))
        if rows or complete or troubles:
            self._first.set()

    def _attempt(self, name: str, work: Callable[[], None]) -> list[str]:
        try:
            work()
        except (DmlsError, SQLAlchemyError, OSError, ValueError) as error:
            log.warning("the table of jobs: %s: %s", name, error)
            return [f"{name} does not answer: what it tells is as of before"]
        return []

    def _read_airflow(self) -> None:
        with create_session() as session:
            self._scheduled.refresh(session)

    def _read_triton(self) -> None:
        from dmls_core.airflow.settings import airflow_settings

        settings = airflow_settings()
        if address := settings.triton_http.partition(",")[0].strip():
            self._served = served_versions(address, settings.load_key())

    def _read_snapshot(self, stored: StoredJobs) -> None:
        with create_session() as session:
            version = bundle_version(session, bundle_name())
        if version:
            stored.read_snapshot(version)


@cache
def job_index() -> JobIndex:
    """Return the one index of this process."""
    return JobIndex()
