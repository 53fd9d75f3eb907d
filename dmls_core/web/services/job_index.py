"""The table of all jobs: an index in memory that a thread refreshes while the page is used, and queries."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Literal

import httpx
from sqlalchemy.exc import SQLAlchemyError

from dmls_core.airflow import database
from dmls_core.airflow.auth import User, authorized_dags
from dmls_core.airflow.database import create_session
from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import DmlsError
from dmls_core.web.services import open_store
from dmls_core.web.services.job_sources import (
    AirflowJobs,
    JobKey,
    Outcomes,
    StoredJobs,
    served_version,
    served_versions,
)
from dmls_core.web.services.waiting_times import Start


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, or one submission that has not become a job.

    Attributes:
        state: as in ``_status.json``; ``retired`` if the spec was deleted; ``registered`` until its status
            has been read.
        owner: owner that the spec names, or else the team.
        metric: metric of the scores, to ``maximize`` or ``minimize``; empty before the first run.
        scores: holdout scores of its runs, oldest first.
        served: version in Triton; its score and the time of its deployment are recorded next to it.
        version: version of the accepted spec and data.
        next_run: ISO time; ``None`` without a schedule.
        drift: latest verdict of the monitor, ``steady``, ``drifted`` or ``decayed``.
        queue: position among the runs that wait for the same pool, from 1.
        starts: when the waiting run starts, if the jobs before it have run before.
    """

    team: str
    name: str
    state: str = "registered"
    message: str = ""
    owner: str = ""
    models: tuple[str, ...] = ()
    metric: str = ""
    direction: str = ""
    scores: tuple[float, ...] = ()
    served: int | None = None
    served_score: float | None = None
    served_since: str = ""
    version: int | None = None
    paused: bool = False
    next_run: str | None = None
    drift: str | None = None
    queue: int | None = None
    waiting: str = ""
    starts: Start | None = None
    updated: str = ""

    @property
    def score(self) -> float | None:
        """Score of the served model; of the latest run while nothing is served."""
        if self.served:
            return self.served_score
        return self.scores[-1] if self.scores else None

    @property
    def dag_id(self) -> str:
        """DAG that decides who may see the job; a submission with invalid names never gets one."""
        return f"dmls.{self.team}.{self.name}"


Sort = Literal["job", "state", "owner", "model", "score", "champion", "next", "drift", "queue", "updated"]

SORT_KEYS: dict[Sort, Callable[[JobRow], Any]] = {
    "job": lambda row: (row.team, row.name),
    "state": lambda row: row.state,
    "owner": lambda row: row.owner or None,
    "model": lambda row: row.models or None,
    "score": lambda row: row.score,
    "champion": lambda row: row.served,
    "next": lambda row: row.next_run,
    "drift": lambda row: row.drift,
    "queue": lambda row: row.queue,
    "updated": lambda row: row.updated or None,
}
"""Sort key of each column; ``None`` comes last in either direction."""


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A query of the table.

    Attributes:
        text: words that must all occur in the team, name, owner, model, state, or message.
        states: only these states; empty for all but retired jobs of which nothing is served.
    """

    text: str = ""
    states: Collection[str] = ()
    team: str = ""
    model: str = ""
    sort: Sort = "updated"
    descending: bool = True
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the matching rows.

    Attributes:
        total: number of matching rows on all pages.
        states: number of rows in each state, regardless of ``JobQuery.states``.
        teams: all teams that the caller may see; ``models`` are those of their jobs.
    """

    rows: tuple[JobRow, ...]
    total: int
    states: dict[str, int]
    teams: tuple[str, ...]
    models: tuple[str, ...]


def in_order(rows: Iterable[JobRow], sort: Sort, *, descending: bool) -> list[JobRow]:
    """Return ``rows`` sorted by a column."""
    key = SORT_KEYS[sort]
    keyed = [(key(row), row) for row in rows]
    defined = sorted(
        ((value, row) for value, row in keyed if value is not None),
        key=lambda pair: (pair[0], pair[1].team, pair[1].name),
        reverse=descending,
    )
    return [row for _, row in defined] + [row for value, row in keyed if value is None]


def search(rows: Sequence[JobRow], query: JobQuery) -> Page:
    """Return the page that ``query`` selects of ``rows``, which are in its order."""
    words = query.text.casefold().split()
    matches = [row for row in rows if _matches(row, query, words)]
    states = Counter(row.state for row in matches)
    selected = set(query.states)
    matches = [row for row in matches if (row.state in selected if selected else _is_current(row))]
    return Page(
        rows=tuple(matches[query.offset : query.offset + query.limit]),
        total=len(matches),
        states=dict(sorted(states.items())),
        teams=tuple(sorted({row.team for row in rows})),
        models=tuple(sorted({model for row in rows for model in row.models})),
    )


def _is_current(row: JobRow) -> bool:
    return row.state != "retired" or row.served is not None


def _matches(row: JobRow, query: JobQuery, words: Sequence[str]) -> bool:
    if (query.team and row.team != query.team) or (query.model and query.model not in row.models):
        return False
    if not words:
        return True
    text = f"{row.team}/{row.name} {row.owner} {' '.join(row.models)} {row.state} {row.message}".casefold()
    return all(word in text for word in words)


log = logging.getLogger(__name__)

MIN_INTERVAL = 2.0
"""Shortest pause between two refreshes, in seconds."""

BACKOFF_FACTOR = 4
"""Ratio of the pause to the refresh before it, so that refreshes do not keep large platforms busy."""

_FIRST_REFRESH_DELAY = 0.5
"""Seconds between the first rows and the rest."""

IDLE_SECONDS = 300.0
"""The thread ends when the index is unused for this long; the next use starts it again."""

READ_SECONDS = 10.0
"""Longest wait of a read for its rows; ``IndexSnapshot.as_of`` is their age."""

_NO_OUTCOMES = Outcomes()


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The rows of all jobs, by team and name.

    Attributes:
        complete: whether the status of every submission has been read at least once.
        troubles: services that did not respond; their columns are as of an earlier refresh.
        as_of: ISO time in UTC up to which the rows have every change; empty until all were read.
        began: when the refresh that the rows come from began, by the monotonic clock.
    """

    rows: tuple[JobRow, ...] = ()
    complete: bool = False
    troubles: tuple[str, ...] = ()
    as_of: str = ""
    began: float = 0.0
    _orders: dict[tuple[Sort, bool], list[JobRow]] = field(default_factory=dict, init=False, compare=False)

    def in_order(self, query: JobQuery) -> list[JobRow]:
        """Return all rows in the order of ``query``; sort them once only."""
        key = query.sort, query.descending
        if key not in self._orders:
            self._orders[key] = in_order(self.rows, query.sort, descending=query.descending)
        return self._orders[key]


class JobIndex:
    """Rows of all jobs, kept up to date by a thread while they are read."""

    def __init__(self) -> None:
        self._snapshot = IndexSnapshot()
        self._published = threading.Condition()
        self._thread: threading.Thread | None = None
        self._used = 0.0
        self._changed = 0.0
        self._refresh_now = threading.Event()
        self._stored: StoredJobs | None = None
        self._airflow = AirflowJobs()
        self._served: dict[str, int] = {}

    def start(self) -> None:
        """Start the thread, or keep it alive; it ends when the index is unused."""
        with self._published:
            self._used = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                # What changed while no thread ran is not in the rows.
                self._changed = self._used
                self._thread = threading.Thread(target=self._run, name="dmls-job-index", daemon=True)
                self._thread.start()

    def refresh(self) -> None:
        """Start a refresh at once, after a change: the next read has it."""
        self.start()
        self._changed = time.monotonic()
        self._refresh_now.set()

    def snapshot(self) -> IndexSnapshot:
        """Return rows that have every change before the thread's start, and every change made here.

        After ``READ_SECONDS``, return those of the last refresh.
        """
        self.start()
        with self._published:
            self._published.wait_for(self._is_current, READ_SECONDS)
            return self._snapshot

    def _is_current(self) -> bool:
        snapshot = self._snapshot
        if not snapshot.complete:  # the first rows say that they are not all
            return bool(snapshot.rows or snapshot.troubles)
        return snapshot.began >= self._changed

    def _run(self) -> None:
        while self._is_used():
            self._refresh_now.clear()  # before the time: a change after it starts another refresh
            began, as_of = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
            try:
                self._stored = self._stored or StoredJobs(open_store())
                self._refresh(self._stored, began, as_of)
            except Exception:
                log.exception("the table of jobs could not be refreshed")
                troubles = ("DMLS: see the API server's log",)
                self._publish(replace(self._snapshot, troubles=troubles, began=began))
            self._refresh_now.wait(max(MIN_INTERVAL, BACKOFF_FACTOR * (time.monotonic() - began)))

    def _is_used(self) -> bool:
        with self._published:
            if time.monotonic() - self._used < IDLE_SECONDS:
                return True
            self._thread = None
            return False

    def _refresh(self, stored: StoredJobs, began: float, as_of: str) -> None:
        is_first = not self._snapshot.complete
        if is_first and not stored.records:
            # One object is enough for the first rows.
            troubles = self._attempt("The store", lambda: self._read_registry(stored))
            self._publish(IndexSnapshot(self._rows(stored), troubles=tuple(troubles)))
            # Threads share one interpreter lock: let the requests that wait for these rows finish first.
            self._refresh_now.wait(_FIRST_REFRESH_DELAY)
        troubles = self._attempt("Airflow's database", self._read_airflow)
        troubles += self._attempt("Triton", self._read_triton)
        if is_first:  # reading every status takes a while
            self._publish(IndexSnapshot(self._rows(stored), troubles=tuple(troubles)))
        store_troubles = self._attempt("The store", stored.refresh)
        troubles += self._attempt("Airflow's database", partial(self._find_late, stored))
        troubles += store_troubles
        self._publish(
            IndexSnapshot(
                self._rows(stored),
                complete=not (is_first and store_troubles),
                troubles=tuple(troubles),
                as_of=self._snapshot.as_of if troubles else as_of,
                began=began,
            )
        )

    def _rows(self, stored: StoredJobs) -> tuple[JobRow, ...]:
        return merge(stored, self._airflow, self._served)

    def _publish(self, snapshot: IndexSnapshot) -> None:
        with self._published:
            self._snapshot = snapshot
            self._published.notify_all()

    def _attempt(self, service: str, work: Callable[[], None]) -> list[str]:
        try:
            work()
        except (DmlsError, SQLAlchemyError, httpx.HTTPError, OSError, ValueError) as error:
            log.warning("the table of jobs: %s: %s", service, error)
            return [f"{service} does not respond: its columns may be out of date"]
        return []

    def _read_airflow(self) -> None:
        with create_session() as session:
            self._airflow.refresh(session)

    def _find_late(self, stored: StoredJobs) -> None:
        with create_session() as session:
            self._airflow.find_late(session, stored)

    def _read_triton(self) -> None:
        settings = airflow_settings()
        if settings.triton_http:
            self._served = served_versions(settings.triton_http, settings.load_key())

    def _read_registry(self, stored: StoredJobs) -> None:
        with create_session() as session:
            version = database.bundle_version(session)
        if version:
            stored.read_snapshot(version)


@cache
def job_index() -> JobIndex:
    """Return the index of this process."""
    return JobIndex()


def find_jobs(user: User, query: JobQuery) -> tuple[Page, IndexSnapshot]:
    """Return the rows that match ``query`` among the jobs that Airflow lets ``user`` see."""
    snapshot = job_index().snapshot()
    readable = authorized_dags(user, {row.dag_id for row in snapshot.rows})
    return search([row for row in snapshot.in_order(query) if row.dag_id in readable], query), snapshot


def merge(stored: StoredJobs, airflow: AirflowJobs, served: Mapping[str, int]) -> tuple[JobRow, ...]:
    """Return a row for every job, and for every submission that has not become one."""
    keys = stored.records.keys() | stored.statuses.keys()
    return tuple(_row(key, stored, airflow, served) for key in sorted(keys))


def _row(key: JobKey, stored: StoredJobs, airflow: AirflowJobs, served: Mapping[str, int]) -> JobRow:
    team, name = key
    record, status = stored.records.get(key), stored.statuses.get(key)
    spec = stored.specs.get(record.spec_sha256) if record else None
    dag_id = f"dmls.{team}.{name}"
    dag, outcomes = airflow.dags.get(dag_id), airflow.outcomes.get(dag_id, _NO_OUTCOMES)
    wait, model = airflow.waits.get(dag_id), stored.served.get(key)
    retired = record is not None and record.state == "retired" and (not status or status.state == "waiting")
    if retired:
        state, message = "retired", "The spec was deleted; the history stays."
    elif status:
        state, message = status.state, status.message
    else:
        state, message = "registered", "Its status has not been read yet."
    return JobRow(
        team=team,
        name=name,
        state=state,
        message=message,
        owner=(spec.owner if spec else "") or team,
        models=spec.models if spec else (),
        metric=(model.metric if model else "") or outcomes.metric,
        direction=outcomes.direction,
        scores=tuple(outcomes.scores.values()),
        served=served_version(model, state, served.get(f"{team}.{name}")),
        served_score=model.score if model else None,
        served_since=model.since if model else "",
        version=record.version if record else None,
        paused=bool(dag and dag.paused),
        next_run=dag.next_run.isoformat() if dag and dag.next_run and not retired else None,
        drift=stored.drift.get(key),
        queue=wait.position if wait else None,
        waiting=wait.reason if wait else airflow.late.get(dag_id, ""),
        starts=Start.of(wait.starts) if wait else None,
        updated=status.updated if status else record.admitted if record else "",
    )
