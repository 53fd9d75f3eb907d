"""REST API of jobs: the table, one job, its versions and its history."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, Field

from dmls_core.airflow.metadata import LogEvent, SessionDep
from dmls_core.web.dependencies import AuditViewer, Caller, JobQueryParameters, JobViewer
from dmls_core.web.services import audit
from dmls_core.web.services.job_details import JobDetails, JobVersion, read_job, read_versions
from dmls_core.web.services.job_index import find_jobs
from dmls_core.web.services.store_access import open_store

router = APIRouter(prefix="/jobs", tags=["Jobs"])


class JobEntry(BaseModel):
    """One job, or one submission that has not become a job."""

    job: str = Field(description="`<team>/<name>`")
    team: str
    name: str
    state: str
    message: str
    owner: str
    models: list[str]
    metric: str
    direction: str
    score: float | None = Field(description="Score of the latest run on its holdout.")
    scores: list[float] = Field(description="Scores of the runs, oldest first.")
    served: int | None = Field(description="Version that Triton serves.")
    champion: int | None = Field(description="MLflow's version of the served model.")
    version: int | None = Field(description="Version of the accepted spec and data.")
    paused: bool
    next_run: str | None
    drift: str | None
    queue: int | None = Field(description="Position among the runs that wait for the same pool, from 1.")
    waiting: str = Field(description="Why the job waits.")
    updated: str


class JobList(BaseModel):
    """One page of the matching jobs."""

    jobs: list[JobEntry]
    total: int
    states: dict[str, int] = Field(description="Number of jobs in each state.")
    teams: list[str]
    models: list[str]
    complete: bool = Field(description="False until every status has been read once.")
    troubles: list[str] = Field(description="Services that do not respond.")


@router.get("", summary="List jobs")
def list_jobs(caller: Caller, query: JobQueryParameters) -> JobList:
    """Return jobs, and submissions that have not become jobs, that the caller may see."""
    page, snapshot = find_jobs(caller, query)
    return JobList(
        jobs=[JobEntry(job=f"{row.team}/{row.name}", score=row.score, **asdict(row)) for row in page.rows],
        total=page.total,
        states=page.states,
        teams=list(page.teams),
        models=list(page.models),
        complete=snapshot.complete,
        troubles=list(snapshot.troubles),
    )


@router.get("/{team}/{name}", summary="Show a job")
def show_job(caller: JobViewer, session: SessionDep) -> JobDetails:
    """Return a job's state, its current spec and data, and what the caller may do with it."""
    return read_job(session, open_store(), caller.user, caller.team, caller.name)


@router.get("/{team}/{name}/versions", summary="List a job's versions")
def list_versions(caller: JobViewer) -> list[JobVersion]:
    """Return the latest accepted versions, newest first, each with its changes."""
    return read_versions(open_store(), caller.team, caller.name)


@router.get("/{team}/{name}/events", summary="List the events of a job")
def list_events(caller: AuditViewer, session: SessionDep) -> list[LogEvent]:
    """Return who did what with the job and when, from Airflow's audit log, latest first."""
    return audit.read_events(session, caller.dag_id)
