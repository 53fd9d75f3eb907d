"""Write into ``_status`` what keeps an accepted version from running, and have a blocked version run.

A failed run whose status still says that it runs is corrected. A run that is dated in the future, since a
clock was set back, and one that waits for the approval of a retired job are left to people, and named.

The page ``incoming/_status.md`` names the services that fail.

It runs in the DAG processor, which reads the registry every few seconds and has Airflow's database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from dmls_core.airflow import database
from dmls_core.airflow.database import Session
from dmls_core.airflow.operations.late_versions import CLOCK_TOLERANCE, LateVersion, LateVersions
from dmls_core.airflow.operations.service_health import Health, Probe, probe_all
from dmls_core.airflow.operations.unreported_failures import UnreportedFailures
from dmls_core.errors import DmlsError
from dmls_core.intake.status import escape
from dmls_core.intake.status_store import add_note, read_status, remove_note
from dmls_core.store import JobRecord, Registry, Store, layout

log = logging.getLogger(__name__)

_WATCH_SECONDS = 10.0

_THREADS = 16

_RETIRED_NOTE = (
    "The job is retired, but its last run waits for an approval. Decline it with Retire on the job's page, "
    "or in Airflow"
)

JobKey = tuple[str, str]
"""(Team, job)."""


class Watchdog:
    """Notes in the statuses of jobs; each is removed when its cause is gone."""

    def __init__(self, store: Store, probes: Mapping[str, Probe]) -> None:
        self._store = store
        self._probes = probes
        self._failing: list[tuple[str, str]] | None = None
        self._versions = LateVersions()
        self._failures = UnreportedFailures()
        self._answered: set[tuple[str, str, int]] = set()
        self._notes: dict[JobKey, str] = {}
        self._due = 0.0

    def watch(self, records: Collection[JobRecord], faults: Mapping[str, str]) -> None:
        """Look every ``_WATCH_SECONDS`` at the registry's records, and at the keys that are unreadable."""
        if time.monotonic() < self._due:
            return
        try:
            # The DAG processor has a session of its own in this thread.
            with database.create_session(scoped=False) as session:
                self._failures.observe(session)
                notes = _find_stuck_runs(session, records)
            late = self._find_late(records)
            notes |= {(version.record.team, version.record.name): version.reason for version in late}
            self._write({**notes, **{_job_of(key): _damaged(fault) for key, fault in faults.items()}})
            for version in late:
                self._unblock(version)
            self._write_services()
            with database.create_session(scoped=False) as session:
                self._failures.correct(session, self._store)
        except Exception:
            # Jobs must get their DAGs even if a service that only this needs is down.
            log.exception("the watchdog could not look at all jobs; it looks again")
        self._due = time.monotonic() + _WATCH_SECONDS

    def _find_late(self, records: Iterable[JobRecord]) -> list[LateVersion]:
        with database.create_session(scoped=False) as session:
            open_ones = [
                record
                for record in self._versions.without_run(session, records)
                if (record.team, record.name, record.version) not in self._answered
            ]
            with ThreadPoolExecutor(_THREADS) as threads:
                accepted = list(threads.map(self._is_accepted, open_ones))
            waiting = [record for record, is_accepted in zip(open_ones, accepted, strict=True) if is_accepted]
            return list(self._versions.find(session, waiting).values())

    def _is_accepted(self, record: JobRecord) -> bool:
        """Return whether the status of a version mentions no run; remember if it mentions one."""
        status = read_status(self._store, record.team, record.name)
        if status is None or status.run_key != record.run_key:
            return False
        if status.state != "accepted":
            self._answered.add((record.team, record.name, record.version))
        return status.state == "accepted"

    def _write(self, notes: Mapping[JobKey, str]) -> None:
        for job in self._notes.keys() - notes.keys():
            remove_note(self._store, *job, self._notes.pop(job))
        for job, note in notes.items():
            if self._notes.get(job) != note:
                log.warning("%s/%s: %s", *job, note)
                add_note(self._store, *job, note, {})
                self._notes[job] = note

    def _write_services(self) -> None:
        """Write the page if other services fail than before."""
        services = probe_all(self._probes)
        failing: list[tuple[str, str]] = [
            (service.name, service.state) for service in services if service.hint
        ]
        if failing != self._failing:
            key = layout.incoming_file("", "", layout.STATUS_MD)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            page = f"{_services_page(services)}\nSince {now}. DMLS writes this file.\n"
            self._store.put(key, page.encode(errors="replace"))
            self._failing = failing

    def _unblock(self, late: LateVersion) -> None:
        if late.blocked_until is None:
            return
        try:
            Registry(self._store).postpone(late.record, late.blocked_until)
        except DmlsError as error:
            log.warning("cannot postpone the admission of %s: %s", late.record, error)


def _find_stuck_runs(session: Session, records: Iterable[JobRecord]) -> dict[JobKey, str]:
    """Return what keeps runs from ending that only people can help."""
    ahead = database.runs_ahead(session, datetime.now(UTC) + CLOCK_TOLERANCE)
    notes = {
        layout.parse_dag_id(
            dag_id
        ): f"The system clock was set back, and the run is dated {date:%Y-%m-%d %H:%M} "
        "UTC. Airflow continues it then. To train earlier, submit the job under another name"
        for dag_id, date in ahead.items()
        if layout.is_of_job(dag_id)
    }
    asked = database.unanswered_approvals(session)
    retired = [(record.team, record.name) for record in records if record.state == "retired"]
    return notes | {job: _RETIRED_NOTE for job in retired if layout.dag_id(*job) in asked}


def _job_of(key: str) -> JobKey:
    team, _, name = key.removeprefix(layout.JOBS).removesuffix(".json").partition("/")
    return team, name


def _damaged(fault: str) -> str:
    return (
        "The job's record in the registry cannot be read, so no new version starts. The platform's team must "
        f"restore it from a backup, or delete it and run the DAG dmls.intake ({fault})"
    )


def _services_page(services: Iterable[Health]) -> str:
    """Return the page in Markdown that names the services that fail, with their remedies."""
    lines = [
        f"- {service.name} is {service.state}: {escape(service.message)}. Remedy: {escape(service.hint)}."
        for service in services
        if service.hint
    ]
    if not lines:
        return "# The platform works\n\nAll its services respond.\n"
    return "\n".join(["# The platform has a problem", "", *lines, ""])
