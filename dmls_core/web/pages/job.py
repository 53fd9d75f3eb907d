"""A job's pages: how it is now, its runs, its versions, who did what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from dmls_core.airflow.task_id import TaskId
from dmls_core.models.metrics import METRICS
from dmls_core.store import Registry
from dmls_core.web.api.job import Viewer, details, rights, version_list
from dmls_core.web.api.runs import RunDetails, RunId, comparison, run_view
from dmls_core.web.backend import open_store
from dmls_core.web.job import audit
from dmls_core.web.job.about import About, describe
from dmls_core.web.job.history import read_runs
from dmls_core.web.job.trial_view import curve, rank
from dmls_core.web.security import JobCaller, job_may
from dmls_core.web.templating import render

router = APIRouter(prefix="/jobs/{team}/{name}")

SHOWN_TRIALS = 100
RUNS = [Depends(job_may("GET", DagAccessEntity.RUN))]
EVENTS = [Depends(job_may("GET", DagAccessEntity.AUDIT_LOG))]
"""What Airflow is asked besides, as by the API, for pages that show runs or who did what."""


@router.get("", dependencies=RUNS)
def overview(caller: Viewer, session: SessionDep, request: Request, part: str = "") -> HTMLResponse:
    """Show the job with its latest run; with ``part``, what changes while the run goes."""
    about = describe(session, open_store(), caller.team, caller.name)
    runs = read_runs(session, caller.team, caller.name, limit=1)
    view = run_view(session, caller, runs[0].run_id) if runs else None
    template = "job_live.html" if part else "job.html"
    return _render(request, caller, about, template, "overview", **_run_values(about, view))


@router.get("/runs", dependencies=RUNS)
def runs_page(caller: Viewer, session: SessionDep, request: Request) -> HTMLResponse:
    """List the job's runs."""
    about = describe(session, open_store(), caller.team, caller.name)
    runs = read_runs(session, caller.team, caller.name)
    return _render(request, caller, about, "job_runs.html", "runs", runs=runs)


@router.get("/compare", dependencies=RUNS)
def compare_page(
    caller: Viewer,
    session: SessionDep,
    request: Request,
    run: Annotated[list[str] | None, Query(max_length=8)] = None,
) -> HTMLResponse:
    """Show runs side by side."""
    about = describe(session, open_store(), caller.team, caller.name)
    chosen = run or []
    found = comparison(session, caller, chosen) if len(chosen) > 1 else None
    return _render(request, caller, about, "job_compare.html", "runs", comparison=found)


@router.get("/runs/{run_id}", dependencies=RUNS)
def run_page(
    caller: Viewer, session: SessionDep, request: Request, run_id: RunId, part: str = ""
) -> HTMLResponse:
    """Show one run."""
    about = describe(session, open_store(), caller.team, caller.name)
    view = run_view(session, caller, run_id)
    template = "job_live.html" if part else "job_run.html"
    return _render(request, caller, about, template, "runs", **_run_values(about, view))


@router.get("/versions")
def versions_page(caller: Viewer, session: SessionDep, request: Request) -> HTMLResponse:
    """Show the versions of spec and data, and what each changed."""
    about = describe(session, open_store(), caller.team, caller.name)
    versions = version_list(Registry(open_store()), caller.team, caller.name)
    return _render(request, caller, about, "job_versions.html", "versions", versions=versions)


@router.get("/history", dependencies=EVENTS)
def history_page(caller: Viewer, session: SessionDep, request: Request) -> HTMLResponse:
    """Show who did what and when."""
    about = describe(session, open_store(), caller.team, caller.name)
    events = [(event, *audit.tell(event)) for event in audit.read_events(session, caller.dag_id)]
    return _render(request, caller, about, "job_history.html", "history", events=events)


def _render(
    request: Request, caller: JobCaller, about: About, template: str, tab: str, **values: Any
) -> HTMLResponse:
    return render(request, template, job=details(about, rights(caller)), caller=caller, tab=tab, **values)


def _run_values(about: About, view: RunDetails | None) -> dict[str, Any]:
    """Return what the part of a page that shows one run needs."""
    if view is None:
        return {"view": None}
    result, spec = view.result or {}, about.spec or {}
    metric = view.run.metric or result.get("metric") or spec.get("search", {}).get("metric", "")
    direction = view.run.direction or result.get("direction") or _direction(metric)
    states = _step_states(view)
    return {
        "view": view,
        "metric": metric,
        "steps": [(step, states(step)) for step in TaskId],
        "trials": rank(view.trials, direction)[:SHOWN_TRIALS],
        "curve": curve(view.trials, direction),
        "live": view.run.state in {"queued", "running"},
        "parameters": sorted({name for trial in view.trials for name in trial.get("params") or {}}),
    }


def _direction(metric: str) -> str:
    return METRICS[metric].direction if metric in METRICS else "maximize"


def _step_states(view: RunDetails) -> Callable[[str], str]:
    """Return a function from a step to its state; of a mapped one, that of the task which is furthest off."""
    by_task: dict[str, list[str]] = {}
    for task in view.tasks:
        by_task.setdefault(task.task_id, []).append(task.state)

    def state(step: str) -> str:
        found = by_task.get(step, ["none"])
        return next((one for one in found if one not in {"success", "skipped"}), found[0])

    return state
