"""Find accepted versions that Airflow should have started, but has no run of."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dmls_core.airflow import database
from dmls_core.airflow.database import DagState, Session
from dmls_core.airflow.jobs.timetables import submission_run_id
from dmls_core.store import JobRecord, layout

_LATE_AFTER = 60.0
"""Seconds after which a version without a run is late; a run is usually there after a few."""

CLOCK_TOLERANCE = timedelta(minutes=1)
"""Clocks of several machines differ by less; later dates are those of a clock that was set back."""

_QUERIED_RUNS = 1000

RunName = tuple[str, str]
"""(DAG ID, run ID)."""


@dataclass(frozen=True, slots=True)
class LateVersion:
    """A version without a run, and why.

    ``blocked_until``: Airflow starts no run of this version, because it has run an interval that ends then.
    """

    record: JobRecord
    reason: str
    blocked_until: datetime | None = None


@dataclass
class LateVersions:
    """Accepted versions since they were first seen without a run, by a clock that cannot be set."""

    _since: dict[RunName, float] = field(default_factory=dict)
    _started: set[RunName] = field(default_factory=set)

    def without_run(self, session: Session, records: Iterable[JobRecord]) -> list[JobRecord]:
        """Return the records of active jobs whose run Airflow does not have, or no longer has."""
        names = {_run_name(record): record for record in records if record.state == "active"}
        unknown = {name: record for name, record in names.items() if name not in self._started}
        run_ids = [run_id for _, run_id in unknown]
        for start in range(0, len(run_ids), _QUERIED_RUNS):
            self._started |= database.existing_runs(session, run_ids[start : start + _QUERIED_RUNS])
        return [record for name, record in unknown.items() if name not in self._started]

    def find(self, session: Session, waiting: Iterable[JobRecord]) -> dict[str, LateVersion]:
        """Return the late versions by DAG.

        ``waiting`` are those ``without_run`` whose status does not mention a run: old runs are deleted.
        """
        now = time.monotonic()
        records = {_run_name(record): record for record in waiting}
        self._since = {name: self._since.get(name, now) for name in records}
        late = {name[0]: records[name] for name, since in self._since.items() if now - since >= _LATE_AFTER}
        return _explain(session, late) if late else {}


def _run_name(record: JobRecord) -> RunName:
    return layout.dag_id(record.team, record.name), submission_run_id(record.version, record.run_key)


def _explain(session: Session, late: dict[str, JobRecord]) -> dict[str, LateVersion]:
    dags = database.dag_states(session)
    running = {dag_id for dag_id, _, _ in database.unfinished_runs(session)}
    ends = database.latest_interval_ends(session, late.keys())
    versions = {}
    for dag_id, record in late.items():
        dag, end = dags.get(dag_id), ends.get(dag_id)
        blocked = (
            dag is not None
            and not dag.paused
            and dag.next_date != record.admitted_at
            and end is not None
            and end >= record.admitted_at
        )
        ahead = _date_ahead(dag, record)
        reason = _reason(dag, running=dag_id in running, blocked=blocked, ahead=ahead)
        version = f"version {record.version}, accepted {record.admitted_at:%Y-%m-%d %H:%M} UTC"
        versions[dag_id] = LateVersion(
            record, f"Airflow has not started {version}: {reason}", end if blocked else None
        )
    return versions


def _date_ahead(dag: DagState | None, record: JobRecord) -> datetime | None:
    """Return when Airflow starts the version, if that lies in the future."""
    if dag is None or dag.next_run is None or dag.next_date != record.admitted_at:
        return None
    return dag.next_run if dag.next_run > datetime.now(UTC) + CLOCK_TOLERANCE else None


def _reason(dag: DagState | None, *, running: bool, blocked: bool, ahead: datetime | None) -> str:
    if dag is None:
        return "it has no DAG of the job yet. See `dmls doctor` and the DAG processor's log"
    if dag.paused:
        return "the job is paused. Its run starts when you resume the job"
    if running:
        return (
            "the job's previous run has not finished, or waits for approval (`dmls approve` approves it). "
            "The new run starts after it"
        )
    if ahead:
        return f"the system clock was set back. The run starts at {ahead:%Y-%m-%d %H:%M} UTC"
    if blocked:
        return "a clock was set, or an interval of the schedule ended meanwhile. The run starts in a moment"
    return "see `dmls doctor` and the scheduler's log"
