"""One job: what it is, its versions, and what the caller may do with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends
from fastapi.responses import Response
from pydantic import BaseModel, Field

from dmls_core.store import JobRecord, Registry, layout
from dmls_core.web.api.passed import pass_page
from dmls_core.web.backend import open_store
from dmls_core.web.job.about import About, describe
from dmls_core.web.job.differences import Difference, differences
from dmls_core.web.security import JobCaller, job_may, may

router = APIRouter(prefix="/jobs/{team}/{name}", tags=["Job"])

Viewer = Annotated[JobCaller, Depends(job_may("GET"))]


class Rights(BaseModel):
    """What Airflow lets the caller do with the job."""

    deploy: bool
    run: bool
    change: bool
    retire: bool


class JobDetails(BaseModel):
    """A job now."""

    job: str
    state: str
    message: str
    errors: list[dict[str, Any]] = Field(description="What is wrong with the drop or its run.")
    links: dict[str, str]
    updated: str
    version: int | None
    spec: dict[str, Any] | None
    data: list[dict[str, Any]]
    run_key: str | None
    served: int | None = Field(description="The version in Triton that is served.")
    drift: list[dict[str, Any]] = Field(description="Latest comparisons with the training data.")
    paused: bool
    next_run: str | None
    schedule: str
    queue: int | None
    waiting: str
    may: Rights


class Change(BaseModel):
    """One key of the spec that a version changed."""

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
    changes: list[Change] = Field(description="Of the spec and of the data, beside the version before.")


def rights(caller: JobCaller) -> Rights:
    """Return what Airflow lets the caller do with the job, in its own words for a DAG."""
    job = caller.team, caller.name
    return Rights(
        deploy=may(caller.user, "PUT", *job, DagAccessEntity.HITL_DETAIL),
        run=may(caller.user, "POST", *job, DagAccessEntity.RUN),
        change=may(caller.user, "PUT", *job),
        retire=may(caller.user, "DELETE", *job),
    )


@router.get("", summary="Show a job")
def job_details(caller: Viewer, session: SessionDep) -> JobDetails:
    """Return a job's state, its current spec and data, and what the caller may do with it."""
    about = describe(session, open_store(), caller.team, caller.name)
    return details(about, rights(caller))


def details(about: About, granted: Rights) -> JobDetails:
    """Return a job as JSON."""
    status, record, row = about.status, about.record, about.row
    return JobDetails(
        job=f"{about.team}/{about.name}",
        state=about.state,
        message=status.message if status else "",
        errors=[problem.as_json() for problem in status.errors] if status else [],
        links=dict(status.links) if status else {},
        updated=status.updated if status else "",
        version=record.version if record else None,
        spec=about.spec,
        data=record.as_json()["data"] if record else [],
        run_key=(status.run_folder_key if status else None) or (record.run_key if record else None),
        served=row.served if row else None,
        drift=about.drift,
        paused=about.paused,
        next_run=about.next_run,
        schedule=about.schedule,
        queue=row.queue if row else None,
        waiting=row.waiting if row else "",
        may=granted,
    )


@router.get("/drift", summary="Show a drift report", response_class=Response)
def drift_report(caller: Viewer, source: Literal["requests", "data"]) -> Response:
    """Pass the report of the latest comparison of `requests` or of new `data` through, in a sandbox."""
    key = layout.latest_drift(caller.team, caller.name, source, "drift.html")
    return pass_page(key, f"comparison of {source}", "the monitor makes one where the spec has [drift]")


@router.get("/versions", summary="List a job's versions")
def job_versions(caller: Viewer) -> list[JobVersion]:
    """Return the latest accepted versions, the newest first, each with what it changed."""
    return version_list(Registry(open_store()), caller.team, caller.name)


def version_list(registry: Registry, team: str, name: str) -> list[JobVersion]:
    """Return a job's latest versions with their differences."""
    versions = registry.versions(team, name)
    documents = [_document(registry, version) for version in versions]
    return [
        JobVersion(
            version=version.version,
            admitted=version.admitted,
            spec_sha256=version.spec_sha256,
            run_key=version.run_key,
            data=version.as_json()["data"],
            changes=[
                _change(row)
                for row in (differences(documents[i + 1], documents[i]) if i + 1 < len(versions) else ())
            ],
        )
        for i, version in enumerate(versions)
    ]


def _document(registry: Registry, version: JobRecord) -> dict[str, Any]:
    """Return what is compared between versions: the spec's keys, and each data file by its name."""
    data = {item.key.rpartition("/")[2]: f"{item.size:,} bytes, ETag {item.etag}" for item in version.data}
    return {**registry.spec(version.spec_sha256), "data file": data}


def _change(row: Difference) -> Change:
    return Change(key=row.key, before=row.values[0], after=row.values[1])
