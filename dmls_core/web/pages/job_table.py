"""The Jobs page."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from dmls_core.web.dependencies import Caller, JobQueryParameters
from dmls_core.web.services.job_index import find_jobs
from dmls_core.web.services.job_table import JobQuery, Page
from dmls_core.web.templating import base_path, render

router = APIRouter()

COLUMNS = (
    ("Job", "job"),
    ("State", "state"),
    ("Model", "model"),
    ("Score", "score"),
    ("Champion", "champion"),
    ("Drift", "drift"),
    ("Next run", "next"),
    ("Owner", "owner"),
    ("Updated", "updated"),
)
"""(Heading, sort column)."""

DESCENDING_FIRST = frozenset({"score", "champion", "updated"})


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
    return not query.descending if query.sort == column else column in DESCENDING_FIRST


def _neighbors(request: Request, query: JobQuery, page: Page) -> dict[str, str]:
    """Return the URLs of the previous and the next page."""
    found = {}
    if query.offset:
        found["previous"] = _url(request, query, offset=max(0, query.offset - query.limit))
    if query.offset + query.limit < page.total:
        found["next"] = _url(request, query, offset=query.offset + query.limit)
    return found


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
    kept = {name: value for name, value in values.items() if value not in ("", [], None)}
    return f"{base_path(request)}/?{urlencode(kept, doseq=True)}"
