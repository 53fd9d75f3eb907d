"""Read one job: its state, its spec, and its versions."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from dmls_core.airflow import metadata
from dmls_core.airflow.auth import DagAccessEntity, User, is_authorized
from dmls_core.airflow.metadata import Session
from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.intake import read_status
from dmls_core.store import JobRecord, Registry, Store, layout
from dmls_core.web.services.comparison import differences
from dmls_core.web.services.job_index import job_index
from dmls_core.web.services.runs import read_json


class Rights(BaseModel):
    """What Airflow allows the caller to do with the job."""

    deploy: bool
    run: bool
    change: bool
    retire: bool


class JobDetails(BaseModel):
    """The current state of a job."""

    job: str = Field(description="`<team>/<name>`")
    state: str
    message: str
    errors: list[dict[str, Any]] = Field(description="Errors in the submission or of its run.")
    links: dict[str, str]
    updated: str
    version: int | None
    spec: dict[str, Any] | None = Field(description="Spec of the current version, with all defaults.")
    data: list[dict[str, Any]]
    run_key: str | None
    served: int | None = Field(description="Version that Triton serves.")
    drift: list[dict[str, Any]] = Field(description="Latest comparisons with the training data.")
    paused: bool
    next_run: str | None
    schedule: str = Field(description="Schedule in words.")
    queue: int | None = Field(description="Position among the runs that wait for the same pool, from 1.")
    waiting: str = Field(description="Why the job waits.")
    may: Rights


class Change(BaseModel):
    """A key that differs from the previous version."""

    key: str
    before: Any
    after: Any


class JobVersion(BaseModel):
    """One accepted version."""

    version: int
    admitted: str
    spec_sha256: str
    run_key: str
    data: list[dict[str, Any]]
    changes: list[Change] = Field(description="Changes in spec and data since the previous version.")


def read_job(session: Session, store: Store, user: User, team: str, name: str) -> JobDetails:
    """Return everything about a job except its runs; raise ``NotFoundError`` without a submission or job."""
    registry = Registry(store)
    status, record = read_status(store, team, name), registry.job(team, name)
    if status is None and record is None:
        raise NotFoundError(
            ValidationIssue(f"there is no job {team}/{name}", hint="the Jobs page lists all jobs")
        )
    dag = metadata.dag_state(session, layout.dag_id(team, name))
    rows = job_index().snapshot().rows
    row = next((row for row in rows if (row.team, row.name) == (team, name)), None)
    retired = record is not None and record.state == "retired"
    return JobDetails(
        job=f"{team}/{name}",
        state="retired" if retired else status.state if status else "registered",
        message=status.message if status else "",
        errors=[problem.as_json() for problem in status.errors] if status else [],
        links=dict(status.links) if status else {},
        updated=status.updated if status else "",
        version=record.version if record else None,
        spec=registry.spec(record.spec_sha256) if record else None,
        data=record.as_json()["data"] if record else [],
        run_key=(status.run_folder_key if status else None) or (record.run_key if record else None),
        served=row.served if row else None,
        drift=_read_drift(store, team, name),
        paused=bool(dag and dag.paused),
        next_run=dag.next_run.isoformat() if dag and dag.next_run else None,
        schedule=dag.schedule if dag else "",
        queue=row.queue if row else None,
        waiting=row.waiting if row else "",
        may=_rights(user, layout.dag_id(team, name)),
    )


def _rights(user: User, dag_id: str) -> Rights:
    return Rights(
        deploy=is_authorized(user, "PUT", dag_id, DagAccessEntity.HITL_DETAIL),
        run=is_authorized(user, "POST", dag_id, DagAccessEntity.RUN),
        change=is_authorized(user, "PUT", dag_id),
        retire=is_authorized(user, "DELETE", dag_id),
    )


def _read_drift(store: Store, team: str, name: str) -> list[dict[str, Any]]:
    found = {
        source: read_json(store, layout.latest_drift(team, name, source, "drift.json"))
        for source in layout.DRIFT_FOLDERS
    }
    return [drift | {"compared": source} for source, drift in found.items() if drift]


def read_versions(store: Store, team: str, name: str) -> list[JobVersion]:
    """Return the latest accepted versions of a job, newest first, each with its changes."""
    registry = Registry(store)
    versions = registry.versions(team, name)
    documents = [_document(registry, version) for version in versions]
    pairs = zip(documents[1:], documents, strict=False)
    changes = [*(differences(before, after) for before, after in pairs), []]
    return [
        JobVersion(
            version=version.version,
            admitted=version.admitted,
            spec_sha256=version.spec_sha256,
            run_key=version.run_key,
            data=version.as_json()["data"],
            changes=[Change(key=key, before=before, after=after) for key, (before, after) in changed],
        )
        for version, changed in zip(versions, changes, strict=False)
    ]


def _document(registry: Registry, version: JobRecord) -> dict[str, Any]:
    """Return what versions are compared by: the spec, and the data files by name."""
    data = {item.key.rpartition("/")[2]: f"{item.size:,} bytes, ETag {item.etag}" for item in version.data}
    return {**registry.spec(version.spec_sha256), "data file": data}
