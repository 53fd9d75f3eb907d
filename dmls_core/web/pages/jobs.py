"""The table of all jobs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from dmls_core.web.api.jobs import find_jobs, table_query
from dmls_core.web.index import Page, Query
from dmls_core.web.security import Caller
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
"""(Heading, what it sorts by)."""

FALLING_FIRST = frozenset({"score", "champion", "updated"})
"""Columns that are sorted with the largest first when they are chosen."""


@router.get("/")
def jobs_page(
    request: Request, caller: Caller, query: Annotated[Query, Depends(table_query)], part: str = ""
) -> HTMLResponse:
    """Show the jobs; with ``part``, the table alone, which the page's script puts into place."""
    page, view = find_jobs(caller, query)
    return render(
        request,
        "jobs_table.html" if part else "jobs.html",
        columns=COLUMNS,
        query=query,
        page=page,
        view=view,
        sort_url=lambda column: _url(request, query, sort=column, descending=_direction(query, column)),
        pages=_pages(request, query, page),
    )


def _direction(query: Query, column: str) -> bool:
    return not query.descending if query.sort == column else column in FALLING_FIRST


def _pages(request: Request, query: Query, page: Page) -> dict[str, str]:
    """Return the addresses of the rows before and after these."""
    found = {}
    if query.offset:
        found["previous"] = _url(request, query, offset=max(0, query.offset - query.limit))
    if query.offset + query.limit < page.total:
        found["next"] = _url(request, query, offset=query.offset + query.limit)
    return found


def _url(request: Request, query: Query, **changes: object) -> str:
    """Return the address of the table with something of the query changed; a new order starts at the top."""
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
