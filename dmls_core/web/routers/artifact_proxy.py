"""Serve pages that trainers and the monitor wrote into the store, in a sandbox."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from dmls_core.airflow.metadata import SessionDep
from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.store import layout
from dmls_core.web.dependencies import JobCaller, JobViewer, RunId, RunViewer
from dmls_core.web.services.runs import PAGES, read_run
from dmls_core.web.services.store_access import open_store

router = APIRouter(prefix="/jobs/{team}/{name}", tags=["Reports"], default_response_class=Response)

SANDBOX = "sandbox allow-scripts; frame-ancestors 'self'"
"""The page runs its scripts in a separate origin; its own policy blocks everything else."""


@router.get("/drift", summary="Show a drift report")
def show_drift_report(
    caller: JobViewer,
    source: Annotated[Literal["requests", "data"], Query(description="What was compared.")],
) -> Response:
    """Return the report of the latest comparison of `requests`, or of new `data`, as HTML."""
    key = layout.latest_drift(caller.team, caller.name, source, "drift.html")
    return _page(key, f"comparison of {source}", "the monitor compares them if the spec has [drift]")


@router.get("/runs/{run_id}/report", summary="Show a run's report")
def show_report(caller: RunViewer, session: SessionDep, run_id: RunId) -> Response:
    """Return the report of a finished run as HTML."""
    return _run_page(caller, session, run_id, "report")


@router.get("/runs/{run_id}/validation", summary="Show the validation of a run's data")
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
    headers = {"Content-Security-Policy": SANDBOX}
    return Response(store.get(key), media_type="text/html; charset=utf-8", headers=headers)
