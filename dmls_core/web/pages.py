"""HTML pages of what the services return, and static files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import FileResponse, HTMLResponse

from dmls_core.airflow.api_keys import list_keys
from dmls_core.airflow.auth import DagAccessEntity, may_view_connections
from dmls_core.airflow.database import Session, SessionDep, team_dags
from dmls_core.airflow.operations.capacity import plan_platform
from dmls_core.airflow.task_id import TaskId
from dmls_core.html.leaderboard import merge_repeats, rank_trials, score_history
from dmls_core.models.metrics import METRICS
from dmls_core.monitoring.capacity import describe_plan
from dmls_core.settings import DEFAULT_TEAM
from dmls_core.store import layout
from dmls_core.web.dependencies import (
    Caller,
    ClusterViewer,
    Editor,
    JobCaller,
    JobQueryParameters,
    JobViewer,
    OpenApi,
    RunId,
    TeamEditor,
    job_access,
    may_change_team,
)
from dmls_core.web.services import open_store
from dmls_core.web.services.job_details import (
    JobDetails,
    describe_event,
    read_events,
    read_job,
    read_versions,
)
from dmls_core.web.services.job_index import JobQuery, Page, find_jobs, job_index
from dmls_core.web.services.platform_overview import read_platform
from dmls_core.web.services.result_view import NO_INSIGHT, describe_result
from dmls_core.web.services.run_comparison import compare_runs
from dmls_core.web.services.runs import MAX_RUNS, RunDetails, read_run_details, read_runs
from dmls_core.web.services.scored_files import list_scored_files
from dmls_core.web.templating import base_path, render, static_files

router = APIRouter()

COLUMNS = (
    ("Job", "job"),
    ("State", "state"),
    ("Model", "model"),
    ("Score", "score"),
    ("Served", "champion"),
    ("Drift", "drift"),
    ("Next run", "next"),
    ("Owner", "owner"),
    ("Updated", "updated"),
)
"""(Heading, sort column)."""

_DESCENDING_FIRST = frozenset({"score", "champion", "updated"})


@router.get("/")
def jobs_page(request: Request, caller: Caller, query: JobQueryParameters, part: str = "") -> HTMLResponse:
    """Show the jobs; with ``part``, only the table, which the page's script inserts."""
    page, snapshot = find_jobs(caller, query)
    return render(
        request,
        "jobs_table.html" if part else "jobs.html",
        columns=COLUMNS,
        query=query,
        page=page,
        snapshot=snapshot,
        sort_url=lambda column: _url(request, query, sort=column, descending=_direction(query, column)),
        pages=_neighbors(request, query, page),
    )


def _direction(query: JobQuery, column: str) -> bool:
    return not query.descending if query.sort == column else column in _DESCENDING_FIRST


def _neighbors(request: Request, query: JobQuery, page: Page) -> dict[str, str]:
    """Return the URLs of the previous and the next page."""
    urls = {}
    if query.offset:
        urls["previous"] = _url(request, query, offset=max(0, query.offset - query.limit))
    if query.offset + query.limit < page.total:
        urls["next"] = _url(request, query, offset=query.offset + query.limit)
    return urls


def _url(request: Request, query: JobQuery, **changes: object) -> str:
    """Return the URL of the table with changes to the query; without ``offset``, of its first page."""
    values: dict[str, object] = {
        "q": query.text,
        "state": list(query.states),
        "team": query.team,
        "model": query.model,
        "sort": query.sort,
        "descending": query.descending,
        "limit": query.limit,
        **changes,
    }
    parameters = {name: value for name, value in values.items() if value not in ("", [], None)}
    return f"{base_path(request)}/?{urlencode(parameters, doseq=True)}"


job_router = APIRouter(prefix="/jobs/{team}/{name}")

_MAX_TRIALS = 100

_SEES_RUNS = [Depends(job_access("GET", DagAccessEntity.RUN))]
_SEES_EVENTS = [Depends(job_access("GET", DagAccessEntity.AUDIT_LOG))]
"""Access that pages with runs or events need in addition to the job, as in the REST API."""


@job_router.get("", dependencies=_SEES_RUNS)
def overview_page(caller: JobViewer, session: SessionDep, request: Request, part: str = "") -> HTMLResponse:
    """Show the job with its latest run; with ``part``, only what changes during the run."""
    runs = read_runs(session, caller.team, caller.name, limit=1)
    template = "job_live.html" if part else "job.html"
    return _run_page(request, session, caller, template, "overview", runs[0].run_id if runs else None)


@job_router.get("/runs", dependencies=_SEES_RUNS)
def runs_page(caller: JobViewer, session: SessionDep, request: Request) -> HTMLResponse:
    """List the job's runs."""
    runs = read_runs(session, caller.team, caller.name)
    return _job_page(request, session, caller, "job_runs.html", "runs", runs=runs)


@job_router.get("/compare", dependencies=_SEES_RUNS)
def compare_page(
    caller: JobViewer,
    session: SessionDep,
    request: Request,
    run: Annotated[list[str] | None, Query(max_length=8)] = None,
) -> HTMLResponse:
    """Show runs side by side."""
    compared = None
    if run and len(run) > 1:
        compared = compare_runs(session, open_store(), caller.team, caller.name, run)
    return _job_page(request, session, caller, "job_compare.html", "runs", comparison=compared)


@job_router.get("/runs/{run_id}", dependencies=_SEES_RUNS)
def run_page(
    caller: JobViewer, session: SessionDep, request: Request, run_id: RunId, part: str = ""
) -> HTMLResponse:
    """Show one run; with ``part``, only what changes during the run."""
    template = "job_live.html" if part else "job_run.html"
    return _run_page(request, session, caller, template, "runs", run_id)


@job_router.get("/versions")
def versions_page(caller: JobViewer, session: SessionDep, request: Request) -> HTMLResponse:
    """Show the versions of spec and data with their changes."""
    versions = read_versions(open_store(), caller.team, caller.name)
    return _job_page(request, session, caller, "job_versions.html", "versions", versions=versions)


@job_router.get("/history", dependencies=_SEES_EVENTS)
def history_page(caller: JobViewer, session: SessionDep, request: Request) -> HTMLResponse:
    """Show the user actions on the job."""
    events = [(event, *describe_event(event)) for event in read_events(session, caller.dag_id)]
    names = {run.run_id: run.name for run in read_runs(session, caller.team, caller.name, limit=MAX_RUNS)}
    return _job_page(request, session, caller, "job_history.html", "history", events=events, run_names=names)


@job_router.get("/files")
def files_page(caller: JobViewer, session: SessionDep, request: Request, part: str = "") -> HTMLResponse:
    """Show the scored files of the job; with ``part``, only their table."""
    template = "job_files_table.html" if part else "job_files.html"
    scored = list_scored_files(caller.team, caller.name)
    return _job_page(request, session, caller, template, "files", scored=scored)


@job_router.get("/keys")
def keys_page(caller: Editor, session: SessionDep, request: Request) -> HTMLResponse:
    """Show the API keys that open the job, and the form that creates one."""
    keys = list_keys(caller.team, caller.name)
    may_team = may_change_team(session, caller.user, caller.team)
    choices = [(caller.name, f"{caller.team}/{caller.name}")]
    values = {"team": caller.team, "choices": choices + _all_jobs(caller.team) * may_team}
    return _job_page(
        request, session, caller, "job_keys.html", "keys", keys=keys, may_team=may_team, **values
    )


@router.get("/teams/{team}/keys")
def team_keys_page(caller: TeamEditor, session: SessionDep, request: Request) -> HTMLResponse:
    """Show the API keys of a team and of its jobs, and the form that creates one."""
    prefix = layout.dag_id(caller.team, "a").removesuffix("a")
    jobs = sorted(dag_id.removeprefix(prefix) for dag_id in team_dags(session, caller.team))
    choices = _all_jobs(caller.team) + [(job, f"{caller.team}/{job}") for job in jobs]
    keys = list_keys(caller.team)
    return render(request, "team_keys.html", team=caller.team, keys=keys, choices=choices, may_team=True)


def _all_jobs(team: str) -> list[tuple[str, str]]:
    """Return the choice of a key that opens all jobs of a team."""
    return [("", f"all jobs of {team}")]


@job_router.get("/edit")
def edit_page(caller: JobViewer, request: Request) -> HTMLResponse:
    """Show the form with the job's submitted spec; it submits the next version."""
    return render(request, "submit.html", job=caller)


@job_router.get("/try")
def try_page(caller: JobViewer, request: Request) -> HTMLResponse:
    """Show the form that sends rows to the served model."""
    return render(request, "try.html", team=caller.team, name=caller.name)


def _job_page(
    request: Request, session: Session, caller: JobCaller, template: str, tab: str, **values: Any
) -> HTMLResponse:
    job = read_job(session, open_store(), caller.user, caller.team, caller.name)
    return render(request, template, job=job, caller=caller, tab=tab, **values)


def _run_page(
    request: Request, session: Session, caller: JobCaller, template: str, tab: str, run_id: str | None
) -> HTMLResponse:
    job = read_job(session, open_store(), caller.user, caller.team, caller.name)
    view = read_run_details(session, open_store(), caller.team, caller.name, run_id) if run_id else None
    return render(request, template, job=job, caller=caller, tab=tab, **_run_values(job, view))


def _run_values(job: JobDetails, view: RunDetails | None) -> dict[str, Any]:
    """Return the template variables of one run."""
    if view is None:
        return {"view": None}
    result, spec = view.result or {}, job.spec or {}
    metric = view.run.metric or result.get("metric") or spec.get("search", {}).get("metric", "")
    direction = view.run.direction or result.get("direction") or _metric_direction(metric)
    state_of = _task_states(view)
    insight = {**NO_INSIGHT, **(view.insight or {})}
    ranked = rank_trials(merge_repeats(view.trials), direction)
    return {
        "view": view,
        "result": describe_result(result, insight) if result else None,
        "insight": insight,
        "metric": metric,
        "metric_description": METRICS[metric].description if metric in METRICS else "",
        "steps": [(task, state_of(task)) for task in TaskId],
        "trials": ranked[:_MAX_TRIALS],
        "configurations": len(ranked),
        "history": score_history(view.trials, metric, direction),
        "live": view.run.state in {"queued", "running"},
        "parameters": sorted({name for trial in view.trials for name in trial.get("params") or {}}),
    }


def _metric_direction(metric: str) -> str:
    return METRICS[metric].direction if metric in METRICS else "maximize"


def _task_states(view: RunDetails) -> Callable[[str], str]:
    """Return a function from a task to its state; for a mapped task, the first one without success.

    A deferred task whose trainer reports its progress is running: only its Airflow worker is free.
    """
    by_task: dict[str, list[str]] = {}
    for task in view.tasks:
        by_task.setdefault(task.task_id, []).append(task.state)

    def state_of(task_id: str) -> str:
        states = by_task.get(task_id, ["none"])
        state = next((state for state in states if state not in {"success", "skipped"}), states[0])
        return "running" if state == "deferred" and view.progress else state

    return state_of


MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_ICONS = ("icon.svg", "icon-dark.svg")


@router.get("/submit")
def submit_page(request: Request) -> HTMLResponse:
    """Show the form that submits a new job."""
    return render(request, "submit.html", job=None, default_team=DEFAULT_TEAM)


@router.get("/platform/capacity")
def capacity_part(
    request: Request,
    session: SessionDep,
    _user: ClusterViewer,
    jobs: Annotated[float, Query(ge=0.01, le=1000)] = 1.0,
    rows: Annotated[float, Query(ge=0.01, le=1000)] = 1.0,
) -> HTMLResponse:
    """Show the capacity plan, a part of the platform's page."""
    plan = plan_platform(session, jobs=jobs, rows=rows)
    return render(request, "platform_capacity.html", lines=describe_plan(plan))


@router.get("/platform")
def platform_page(request: Request, session: SessionDep, user: ClusterViewer, part: str = "") -> HTMLResponse:
    """Show the platform; with ``part``, only what changes."""
    template = "platform_live.html" if part else "platform.html"
    return render(request, template, platform=read_platform(session, user), doctor=may_view_connections(user))


@router.get("/api")
def api_page(request: Request, document: OpenApi) -> HTMLResponse:
    """Show the reference of the REST API, from its OpenAPI document."""
    groups: dict[str, list[tuple[str, str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append((method, path, operation))
    return render(request, "api.html", document=document, groups=groups)


@router.get("/static/{name}")
def static_file(name: str, request: Request) -> FileResponse:
    """Return a static file; browsers may cache it if the URL contains its hash."""
    path = static_files().get(name)
    if path is None or path.suffix not in MEDIA_TYPES:
        raise HTTPException(404, f"there is no file {name}")
    if name in _ICONS:
        # Airflow's page loads the icon: the rows are in memory when a user opens the Jobs page.
        job_index().start()
    cache = "private, max-age=31536000, immutable" if request.url.query else "no-cache"
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers={"Cache-Control": cache})
