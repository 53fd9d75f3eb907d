"""All that is known of one job now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.models.dag import DagModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.intake import Status, read_status
from dmls_core.store import JobRecord, Registry, Store, layout
from dmls_core.web.index import JobRow, job_index
from dmls_core.web.job.run_files import read_json


@dataclass(frozen=True, slots=True)
class About:
    """A job.

    Attributes:
        team: that owns it.
        name: its name.
        status: the answer beside its drop.
        record: its current version; ``None`` where it was never accepted.
        spec: that version's spec.
        drift: what the monitor found last of new data and of requests; each has its ``compared``.
        row: its line in the table of jobs, as of the last refresh; ``None`` where it is new.
        in_airflow: whether Airflow has its DAG.
        paused: whether Airflow starts no runs of it.
        next_run: ISO time, if it has a schedule.
        schedule: in words.
    """

    team: str
    name: str
    status: Status | None
    record: JobRecord | None
    spec: dict[str, Any] | None
    drift: list[dict[str, Any]]
    row: JobRow | None
    in_airflow: bool
    paused: bool
    next_run: str | None
    schedule: str

    @property
    def state(self) -> str:
        """As the table of jobs has it."""
        if self.record and self.record.state == "retired":
            return "retired"
        return self.status.state if self.status else "registered"


def describe(session: Session, store: Store, team: str, name: str) -> About:
    """Read everything about a job but its runs.

    Raises:
        NotFoundError: nothing of that name was dropped or accepted.
        StoreError: the store does not answer.
    """
    registry = Registry(store)
    status, record = read_status(store, team, name), registry.job(team, name)
    if status is None and record is None:
        raise NotFoundError(
            ValidationIssue(f"there is no job {team}/{name}", hint="the table of jobs shows all")
        )
    columns = (
        DagModel.is_paused,
        DagModel.next_dagrun_create_after,
        DagModel.timetable_description,
        DagModel.is_stale,
    )
    dag = session.execute(select(*columns).where(DagModel.dag_id == layout.dag_id(team, name))).one_or_none()
    rows = job_index().look().rows
    return About(
        team=team,
        name=name,
        status=status,
        record=record,
        spec=registry.spec(record.spec_sha256) if record else None,
        drift=_read_drift(store, team, name),
        row=next((row for row in rows if (row.team, row.name) == (team, name)), None),
        in_airflow=dag is not None and not dag.is_stale,
        paused=bool(dag and dag.is_paused),
        next_run=dag.next_dagrun_create_after.isoformat() if dag and dag.next_dagrun_create_after else None,
        schedule=(dag.timetable_description or "") if dag else "",
    )


def _read_drift(store: Store, team: str, name: str) -> list[dict[str, Any]]:
    found = {
        source: read_json(store, layout.latest_drift(team, name, source, "drift.json"))
        for source in layout.DRIFT_FOLDERS
    }
    return [drift | {"compared": source} for source, drift in found.items() if drift]
