"""A job's pages: its latest run, its runs, its versions, its history, and its served model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from dmls_core.airflow.auth import DagAccessEntity
from dmls_core.airflow.metadata import Session, SessionDep
from dmls_core.airflow.task_id import TaskId
from dmls_core.models.metrics import METRICS
from dmls_core.web.dependencies import JobCaller, JobViewer, RunId, job_access
from dmls_core.web.services import audit
from dmls_core.web.services.charts import rank_trials, trial_chart
from dmls_core.web.services.comparison import compare_runs
from dmls_core.web.services.job_details import JobDetails, read_job, read_versions
from dmls_core.web.services.runs import RunDetails, read_run_details, read_runs
from dmls_core.web.services.store_access import open_store
from dmls_core.web.templating import render

router = APIRouter(prefix="/jobs/{team}/{name}")

MAX_TRIALS = 100

SEES_RUNS = [Depends(job_access("GET", DagAccessEntity.RUN))]
SEES_EVENTS = [Depends(job_access("GET", DagAccessEntity.AUDIT_LOG))]
"""Access that pages with runs or events need in addition to the job, as in the REST API."""


@router.get("", dependencies=SEES_RUNS)
def overview_page(caller: JobViewer, session: SessionDep, request: Request, part: str = "") -> HTMLResponse:
    """Show the job with its latest run; with ``part``, only what changes during the run."""
    job = _read(session, caller)
    runs = read_runs(session, caller.team, caller.name, limit=1)
    details = _run_details(session, caller, runs[0].run_id) if runs else None
    template = "job_live.html" if part else "job.html"
    return _render(request, caller, job, template, "overview", **_run_values(job, details))


@router.get("/runs", dependencies=SEES_RUNS)
def runs_page(caller: JobViewer, session: SessionDep, request: Request) -> HTMLResponse:
    """List the job's runs."""
    runs = read_runs(session, caller.team, caller.name)
    return _render(request, caller, _read(session, caller), "job_runs.html", "runs", runs=runs)


@router.get("/compare", dependencies=SEES_RUNS)
def compare_page(
    caller: JobViewer,
    session: SessionDep,
    request: Request,
    run: Annotated[list[str] | None, Query(max_length=8)] = None,
) -> HTMLResponse:
    """Show runs side by side."""
    job, run_ids = _read(session, caller), run or []
    found = (
        compare_runs(session, open_store(), caller.team, caller.name, run_ids) if len(run_ids) > 1 else None
    )
    return _render(request, caller, job, "job_compare.html", "runs", comparison=found)


@router.get("/runs/{run_id}", dependencies=SEES_RUNS)
def run_page(
    caller: JobViewer, session: SessionDep, request: Request, run_id: RunId, part: str = ""
) -> HTMLResponse:
    """Show one run; with ``part``, only what changes during the run."""
    job, details = _read(session, caller), _run_details(session, caller, run_id)
    template = "job_live.html" if part else "job_run.html"
    return _render(request, caller, job, template, "runs", **_run_values(job, details))


@router.get("/versions")
def versions_page(caller: JobViewer, session: SessionDep, request: Request) -> HTMLResponse:
    """Show the versions of spec and data with their changes."""
    versions = read_versions(open_store(), caller.team, caller.name)
    job = _read(session, caller)
    return _render(request, caller, job, "job_versions.html", "versions", versions=versions)


@router.get("/history", dependencies=SEES_EVENTS)
def history_page(caller: JobViewer, session: SessionDep, request: Request) -> HTMLResponse:
    """Show the user actions on the job."""
    found = audit.read_events(session, caller.dag_id)
    events = [(event, *audit.describe_event(event)) for event in found]
    job = _read(session, caller)
    return _render(request, caller, job, "job_history.html", "history", events=events)


@router.get("/try")
def try_page(caller: JobViewer, request: Request) -> HTMLResponse:
    """Show the form that sends rows to the served model."""
    return render(request, "try.html", team=caller.team, name=caller.name)


def _read(session: Session, caller: JobCaller) -> JobDetails:
    return read_job(session, open_store(), caller.user, caller.team, caller.name)


def _run_details(session: Session, caller: JobCaller, run_id: str) -> RunDetails:
    return read_run_details(session, open_store(), caller.team, caller.name, run_id)


def _render(
    request: Request, caller: JobCaller, job: JobDetails, template: str, tab: str, **values: Any
) -> HTMLResponse:
    return render(request, template, job=job, caller=caller, tab=tab, **values)


def _run_values(job: JobDetails, view: RunDetails | None) -> dict[str, Any]:
    """Return the template variables of one run."""
    if view is None:
        return {"view": None}
    result, spec = view.result or {}, job.spec or {}
    metric = view.run.metric or result.get("metric") or spec.get("search", {}).get("metric", "")
    direction = view.run.direction or result.get("direction") or _direction(metric)
    state_of = _task_states(view)
    return {
        "view": view,
        "metric": metric,
        "steps": [(task, state_of(task)) for task in TaskId],
        "trials": rank_trials(view.trials, direction)[:MAX_TRIALS],
        "chart": trial_chart(view.trials, direction),
        "live": view.run.state in {"queued", "running"},
        "parameters": sorted({name for trial in view.trials for name in trial.get("params") or {}}),
    }


def _direction(metric: str) -> str:
    return METRICS[metric].direction if metric in METRICS else "maximize"


def _task_states(view: RunDetails) -> Callable[[str], str]:
    """Return a function from a task to its state; for a mapped task, the first one without success."""
    by_task: dict[str, list[str]] = {}
    for task in view.tasks:
        by_task.setdefault(task.task_id, []).append(task.state)

    def state_of(task_id: str) -> str:
        found = by_task.get(task_id, ["none"])
        return next((state for state in found if state not in {"success", "skipped"}), found[0])

    return state_of
