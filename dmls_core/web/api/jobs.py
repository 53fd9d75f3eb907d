"""The table of all jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, Depends
from fastapi import Query as Parameter
from pydantic import BaseModel, Field

from dmls_core.web.index import JobRow, Page, Query, View, job_index, search
from dmls_core.web.index.query import Sort
from dmls_core.web.security import Caller, readable

router = APIRouter(prefix="/jobs", tags=["Jobs"])

MAX_ROWS = 500
MAX_OFFSET = 10_000_000


class JobEntry(BaseModel):
    """One job, or one drop that has not become a job."""

    job: str = Field(description="`<team>/<name>`")
    team: str
    name: str
    state: str
    message: str
    owner: str
    models: list[str]
    metric: str
    direction: str
    score: float | None = Field(description="Of the latest run, on its holdout.")
    scores: list[float] = Field(description="Of the runs, the oldest first.")
    served: int | None = Field(description="The version in Triton that is served.")
    champion: int | None = Field(description="The version in MLflow of the model that is served.")
    version: int | None = Field(description="Of the accepted spec and data.")
    paused: bool
    next_run: str | None
    drift: str | None
    queue: int | None = Field(description="Place among those that wait for a trainer of its kind, from 1.")
    waiting: str = Field(description="Why it waits.")
    updated: str


class JobList(BaseModel):
    """A part of the jobs that were found."""

    jobs: list[JobEntry]
    total: int
    states: dict[str, int] = Field(description="How many there are of each state.")
    teams: list[str]
    models: list[str]
    complete: bool = Field(description="False while the answers to drops are being read the first time.")
    troubles: list[str] = Field(description="Services that do not answer.")


def table_query(
    q: Annotated[str, Parameter(max_length=200, description="Words that must all occur.")] = "",
    state: Annotated[list[str] | None, Parameter(max_length=20)] = None,
    team: Annotated[str, Parameter(max_length=63)] = "",
    model: Annotated[str, Parameter(max_length=100)] = "",
    sort: Sort = "updated",
    descending: bool = True,
    offset: Annotated[int, Parameter(ge=0, le=MAX_OFFSET)] = 0,
    limit: Annotated[int, Parameter(ge=1, le=MAX_ROWS)] = 50,
) -> Query:
    """Read what is asked of the table from the address."""
    return Query(q, tuple(state or ()), team, model, sort, descending, offset, limit)


def find_jobs(user: BaseUser, query: Query) -> tuple[Page, View]:
    """Return the rows asked for, of those jobs that Airflow lets ``user`` see."""
    view = job_index().look()
    seen = readable(user, {row.dag_id for row in view.rows})
    return search([row for row in view.rows if row.dag_id in seen], query), view


def entry(row: JobRow) -> JobEntry:
    """Return a row as JSON."""
    return JobEntry(job=f"{row.team}/{row.name}", score=row.score, **asdict(row))


@router.get("", summary="List jobs")
def list_jobs(caller: Caller, query: Annotated[Query, Depends(table_query)]) -> JobList:
    """Find jobs, and drops that have not become jobs, among those that the caller may see."""
    page, view = find_jobs(caller, query)
    return JobList(
        jobs=[entry(row) for row in page.rows],
        total=page.total,
        states=page.states,
        teams=list(page.teams),
        models=list(page.models),
        complete=view.complete,
        troubles=list(view.troubles),
    )
