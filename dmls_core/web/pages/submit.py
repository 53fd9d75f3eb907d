"""The page that submits a job, and the one that tries its model."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from dmls_core.web.security import JobCaller, job_may
from dmls_core.web.templating import render

router = APIRouter()


@router.get("/submit")
def submit_page(request: Request) -> HTMLResponse:
    """Show the form that drops a submission."""
    return render(request, "submit.html")


@router.get("/jobs/{team}/{name}/try")
def try_page(request: Request, caller: Annotated[JobCaller, Depends(job_may("GET"))]) -> HTMLResponse:
    """Show the form that asks a job's model."""
    return render(request, "try.html", team=caller.team, name=caller.name)
