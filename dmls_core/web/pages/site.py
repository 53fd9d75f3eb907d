"""Pages other than the jobs', and static files."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse

from dmls_core.airflow.auth import may_view_connections
from dmls_core.airflow.metadata import SessionDep
from dmls_core.web.dependencies import ClusterViewer, OpenApi
from dmls_core.web.services.job_index import job_index
from dmls_core.web.services.platform_overview import read_platform
from dmls_core.web.templating import STATIC, render

router = APIRouter()

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

ICONS = ("icon.svg", "icon-dark.svg")


@router.get("/submit")
def submit_page(request: Request) -> HTMLResponse:
    """Show the form that submits a job."""
    return render(request, "submit.html")


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
    found = {path.name: path for path in STATIC.iterdir() if path.suffix in MEDIA_TYPES}.get(name)
    if found is None:
        raise HTTPException(404, f"there is no file {name}")
    if name in ICONS:
        # Airflow's page loads the icon: the rows are in memory when a user opens the Jobs page.
        job_index().start()
    cache = "private, max-age=31536000, immutable" if request.url.query else "no-cache"
    return FileResponse(found, media_type=MEDIA_TYPES[found.suffix], headers={"Cache-Control": cache})
