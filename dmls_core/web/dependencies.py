"""FastAPI dependencies of routes and pages: the signed-in user, access to a job, query parameters."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Query, Request
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool

from dmls_core.airflow import api_keys, auth, database
from dmls_core.airflow.auth import CurrentUser, DagAccessEntity, ResourceMethod, User
from dmls_core.airflow.database import SessionDep
from dmls_core.data.request_rows import PARQUET
from dmls_core.store import layout
from dmls_core.web import AIRFLOW
from dmls_core.web.services.airflow_api import AirflowApi
from dmls_core.web.services.job_index import JobQuery, Sort
from dmls_core.web.services.request_quotas import seconds_over_quota
from dmls_core.web.services.request_slots import FILES, PREDICTIONS, SCORES, SMALL, TABLES, Slots

NAME = f"^{layout.NAME_PATTERN}$"
MAX_ROWS = 500
MAX_OFFSET = 10_000_000

Team = Annotated[str, Path(pattern=NAME, description="Team that owns the job.")]
Name = Annotated[str, Path(pattern=NAME, description="Name of the job within its team.")]
RunId = Annotated[str, Path(max_length=250, description="Airflow's ID of the run.")]
FileName = Annotated[str, Query(max_length=255, description="Name of the file; its suffix gives the format.")]
BINARY_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""``openapi_extra`` of a route that reads its body as a stream of bytes."""


async def signed_in(user: CurrentUser) -> User:
    """Return the user of Airflow's session cookie or bearer token; respond with 401 without one."""
    return user


Caller = Annotated[User, Depends(signed_in)]


@dataclass(frozen=True, slots=True)
class JobCaller:
    """A user, and a job that Airflow gives them access to."""

    user: User
    team: str
    name: str

    @property
    def dag_id(self) -> str:
        """ID of the job's DAG."""
        return layout.dag_id(self.team, self.name)

    @property
    def user_name(self) -> str:
        """Name of the user in logs and records."""
        return self.user.get_name()


def may(
    user: User, method: ResourceMethod, team: str, name: str, entity: DagAccessEntity | None = None
) -> bool:
    """Return whether Airflow allows ``method`` on the DAG of a job, which does not need to exist yet."""
    return auth.is_authorized(user, method, layout.dag_id(team, name), entity)


def job_access(
    method: ResourceMethod, entity: DagAccessEntity | None = None
) -> Callable[[Team, Name, User], JobCaller]:
    """Return a dependency that responds with 403 unless Airflow allows ``method`` on the job's DAG."""

    def check(team: Team, name: Name, user: Caller) -> JobCaller:
        if not may(user, method, team, name, entity):
            raise HTTPException(403, f"Airflow does not allow you to {method} the DAG dmls.{team}.{name}")
        return JobCaller(user, team, name)

    return check


JobViewer = Annotated[JobCaller, Depends(job_access("GET"))]
RunViewer = Annotated[JobCaller, Depends(job_access("GET", DagAccessEntity.RUN))]
LogViewer = Annotated[JobCaller, Depends(job_access("GET", DagAccessEntity.TASK_LOGS))]
AuditViewer = Annotated[JobCaller, Depends(job_access("GET", DagAccessEntity.AUDIT_LOG))]
_check_deployer = job_access("PUT", DagAccessEntity.HITL_DETAIL)


def check_approver(team: Team, name: Name, user: Caller) -> JobCaller:
    """Respond with 403 unless Airflow lets the user answer approvals, and the platform those of this team."""
    caller = _check_deployer(team, name, user)
    if not auth.may_approve(user, team):
        detail = f"only the approvers of {team} may decide which of its models are served"
        raise HTTPException(403, f"{detail}; your ID is {user.get_id()}")
    return caller


Deployer = Annotated[JobCaller, Depends(check_approver)]
Submitter = Annotated[JobCaller, Depends(job_access("POST", DagAccessEntity.RUN))]
"""May start runs of the job, whose DAG does not need to exist yet; a submission starts one."""
Editor = Annotated[JobCaller, Depends(job_access("PUT"))]
Remover = Annotated[JobCaller, Depends(job_access("DELETE"))]


@dataclass(frozen=True, slots=True)
class TeamCaller:
    """A user who may change every job of a team."""

    team: str
    user_name: str


def may_change_team(session: database.Session, user: User, team: str) -> bool:
    """Return whether the team has jobs, and Airflow allows ``user`` to change them and those to come."""
    dags = database.team_dags(session, team)
    allowed = auth.is_authorized(user, "PUT", database.team_dags_pattern(team))
    return bool(dags) and allowed and auth.authorized_dags(user, dags, "PUT") == dags


def check_team_access(team: Team, user: Caller, session: SessionDep) -> TeamCaller:
    """Respond with 403 unless Airflow allows the user to change all jobs of the team."""
    if not may_change_team(session, user, team):
        pattern = database.team_dags_pattern(team)
        raise HTTPException(403, f"Airflow does not allow you to PUT all DAGs {pattern}, or there are none")
    return TeamCaller(team, user.get_name())


TeamEditor = Annotated[TeamCaller, Depends(check_team_access)]


_check_viewer = job_access("GET")


async def check_predictor(request: Request, team: Team, name: Name) -> str:
    """Return who predicts: an API key that opens the job, or a user who may see it.

    Respond with 401 or 403 to others, and with 429 if the team has no request left in this minute.
    """
    caller = await _check_prediction_access(request, team, name)
    if seconds := seconds_over_quota(team):
        wait = math.ceil(seconds)
        detail = f"{team} has sent as many prediction requests as it may in a minute: try again in {wait} s"
        raise HTTPException(429, detail, {"Retry-After": str(wait)})
    return caller


async def _check_prediction_access(request: Request, team: str, name: str) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token.startswith(api_keys.PREFIX):
        user = await auth.current_user(request)
        return (await run_in_threadpool(_check_viewer, team, name, user)).user_name
    try:
        key = await run_in_threadpool(api_keys.read_key, token)
    except api_keys.ApiKeyError as error:
        raise HTTPException(401, str(error), {"WWW-Authenticate": "Bearer"}) from None
    if not key.opens(team, name):
        raise HTTPException(403, f"the API key {key.name!r} opens {key.scope}, not {team}/{name}")
    return api_keys.PREFIX + key.id


async def hold_prediction_slot(
    request: Request, caller: Annotated[str, Depends(check_predictor)]
) -> AsyncIterator[Slots]:
    """Hold one of the slots for a body of this size until the response is sent."""
    headers = request.headers
    size = headers.get("content-length", "")
    # A small file of Parquet may hold any number of rows.
    if size.isdigit() and int(size) <= SMALL and PARQUET not in headers.get("content-type", "").lower():
        await request.body()
        slots = PREDICTIONS
    else:
        slots = TABLES
    async with slots.hold(caller):
        yield slots


PredictionSlots = Annotated[Slots, Depends(hold_prediction_slot)]


def _holding(slots: Slots) -> Callable[[User], AsyncIterator[None]]:
    async def hold(user: Caller) -> AsyncIterator[None]:
        async with slots.hold(user.get_name()):
            yield

    return hold


FILE_SLOT = [Depends(_holding(FILES))]
SCORE_SLOT = [Depends(_holding(SCORES))]
"""``dependencies`` of a route whose body is large; its body must not be parsed by FastAPI."""


def check_cluster_access(user: Caller) -> User:
    """Respond with 403 unless Airflow shows the user its own health and activity."""
    if not auth.may_view_cluster(user):
        raise HTTPException(403, "Airflow does not allow you to see the cluster activity")
    return user


def check_doctor_access(user: Caller) -> None:
    """Respond with 403 unless Airflow shows the user its connections: the checks name addresses and paths."""
    if not auth.may_view_connections(user):
        raise HTTPException(403, "Airflow does not allow you to see connections, which the checks name")


def check_site_access(user: Caller) -> None:
    """Respond with 403 to a user without a role: what needs no job costs CPU time, too."""
    if not auth.may_view_site(user):
        raise HTTPException(403, "Airflow does not allow you to see its pages")


ClusterViewer = Annotated[User, Depends(check_cluster_access)]


def job_query(
    q: Annotated[str, Query(max_length=200, description="Words that must all occur.")] = "",
    state: Annotated[list[str] | None, Query(max_length=20, description="Only jobs in these states.")] = None,
    team: Annotated[str, Query(max_length=63, description="Only jobs of this team.")] = "",
    model: Annotated[str, Query(max_length=100, description="Only jobs that train this model.")] = "",
    sort: Annotated[Sort, Query(description="Column to sort by.")] = "updated",
    descending: Annotated[bool, Query(description="Largest value first.")] = True,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET, description="Rows to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="Rows to return at most.")] = 50,
) -> JobQuery:
    """Read a query of the table of jobs from the URL."""
    return JobQuery(q, tuple(state or ()), team, model, sort, descending, offset, limit)


JobQueryParameters = Annotated[JobQuery, Depends(job_query)]


def openapi_document(request: Request) -> dict[str, Any]:
    """Return the OpenAPI document of the app that handles ``request``."""
    app = request.app
    return get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        servers=[{"url": request.scope.get("root_path", "") or "/"}],
    )


OpenApi = Annotated[dict[str, Any], Depends(openapi_document)]


def airflow_api(request: Request) -> AirflowApi:
    """Return a client of Airflow's REST API with the credentials of ``request``."""
    return AirflowApi(request.scope[AIRFLOW], request.headers)
