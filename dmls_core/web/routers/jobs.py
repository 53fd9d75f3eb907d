"""REST API of jobs: the table, one job with its versions and its history, its runs, and its reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from dmls_core.airflow.database import LogEvent, SessionDep
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.store import layout
from dmls_core.web.dependencies import (
    AuditViewer,
    Caller,
    JobCaller,
    JobQueryParameters,
    JobViewer,
    LogViewer,
    RunId,
    RunViewer,
    airflow_api,
)
from dmls_core.web.services import open_store
from dmls_core.web.services.airflow_api import read_log_tail
from dmls_core.web.services.job_details import (
    JobDetails,
    JobVersion,
    read_events,
    read_job,
    read_versions,
)
from dmls_core.web.services.job_index import find_jobs
from dmls_core.web.services.run_comparison import RunComparison, compare_runs
from dmls_core.web.services.runs import (
    MAX_RUNS,
    PAGES,
    Run,
    RunDetails,
    read_run,
    read_run_details,
    read_runs,
)
from dmls_core.web.services.waiting_times import Start

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
    score: float | None = Field(description="Score of the served model; without one, of the latest run.")
    scores: list[float] = Field(description="Scores of the runs, oldest first.")
    served: int | None = Field(description="Version that Triton serves.")
    served_score: float | None = Field(description="The served model's own score on its holdout.")
    served_since: str = Field(description="Time of the deployment or rollback.")
    version: int | None = Field(description="Version of the accepted spec and data.")
    paused: bool
    next_run: str | None
    drift: str | None
    queue: int | None = Field(description="Position among the runs that wait for the same pool, from 1.")
    waiting: str = Field(description="Why the job waits.")
    starts: Start | None = Field(description="When the waiting run starts, if it can be said.")
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
    as_of: str = Field(description="The jobs have every change up to this time; empty until `complete`.")


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
        as_of=snapshot.as_of,
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
    return read_events(session, caller.dag_id)


runs_router = APIRouter(prefix="/jobs/{team}/{name}/runs", tags=["Runs"])


@runs_router.get("", summary="List a job's runs")
def list_runs(
    caller: RunViewer,
    session: SessionDep,
    limit: Annotated[int, Query(ge=1, le=MAX_RUNS, description="Runs to return at most.")] = 50,
) -> list[Run]:
    """Return the latest runs, newest first."""
    return read_runs(session, caller.team, caller.name, limit=limit)


@runs_router.get("/compare", summary="Compare runs")
def show_comparison(
    caller: RunViewer,
    session: SessionDep,
    run: Annotated[list[str], Query(min_length=2, max_length=8, description="Runs, by `run_id`.")],
) -> RunComparison:
    """Return the scores of some runs, and what differs between them."""
    return compare_runs(session, open_store(), caller.team, caller.name, run)


@runs_router.get("/{run_id}", summary="Show a run")
def show_run(caller: RunViewer, session: SessionDep, run_id: RunId) -> RunDetails:
    """Return a run with its tasks, the trials that have ended, and its result once it has one."""
    return read_run_details(session, open_store(), caller.team, caller.name, run_id)


@runs_router.get("/{run_id}/log", summary="Read the end of a task's log")
async def show_log(
    caller: LogViewer,
    request: Request,
    run_id: RunId,
    task: Annotated[str, Query(max_length=100, description="ID of the task.")] = TaskId.SEARCH.value,
    lines: Annotated[int, Query(ge=1, le=1000, description="Lines to return at most.")] = 200,
) -> list[str]:
    """Return the last lines of a task's latest try, as Airflow has them."""
    return await read_log_tail(airflow_api(request), caller.dag_id, run_id, task, lines)


reports_router = APIRouter(prefix="/jobs/{team}/{name}", tags=["Reports"], default_response_class=Response)

_SANDBOX = "sandbox allow-scripts; frame-ancestors 'self'"
"""The page runs its scripts in a separate origin; its own policy blocks everything else."""


@reports_router.get("/drift", summary="Show a drift report")
def show_drift_report(
    caller: JobViewer,
    source: Annotated[Literal["requests", "data", "labels"], Query(description="What was compared.")],
) -> Response:
    """Return the report of the latest comparison of `requests`, new `data` or late `labels` as HTML."""
    key = layout.latest_comparison(caller.team, caller.name, source, "html")
    return _page(key, f"comparison of {source}", "the monitor compares them if the spec has [drift]")


@reports_router.get("/runs/{run_id}/report", summary="Show a run's report")
def show_report(caller: RunViewer, session: SessionDep, run_id: RunId) -> Response:
    """Return the report of a finished run as HTML."""
    return _run_page(caller, session, run_id, "report")


@reports_router.get("/runs/{run_id}/validation", summary="Show the validation of a run's data")
def show_validation(caller: RunViewer, session: SessionDep, run_id: RunId) -> Response:
    """Return Great Expectations' Data Docs of a run as HTML."""
    return _run_page(caller, session, run_id, "validation")


def _run_page(caller: JobCaller, session: SessionDep, run_id: str, page: str) -> Response:
    run = read_run(session, caller.team, caller.name, run_id)
    key = layout.run_folder(caller.team, caller.name, run.run_key or "none") + PAGES[page]
    return _page(key, f"{page} of this run", "it is written when the run finishes")


def _page(key: str, what: str, hint: str) -> Response:
    store = open_store()
    if store.head(key) is None:
        raise NotFoundError(ValidationIssue(f"there is no {what} yet", hint=hint))
    headers = {"Content-Security-Policy": _SANDBOX}
    return Response(store.get(key), media_type="text/html; charset=utf-8", headers=headers)
