"""Style sheets, scripts and icons: a fixed set of files."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse

from dmls_core.web.index import job_index
from dmls_core.web.templating import STATIC

router = APIRouter()

KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

ICONS = ("icon.svg", "icon-dark.svg")
"""Of the entry in Airflow's navigation."""


@router.get("/static/{name}")
def static_file(name: str, request: Request) -> FileResponse:
    """Return one of the page's own files; an address with the content's hash may be kept for ever."""
    found = {path.name: path for path in STATIC.iterdir() if path.suffix in KINDS}.get(name)
    if found is None:
        raise HTTPException(404, f"there is no file {name}")
    if name in ICONS:
        # Airflow's own page shows the entry: rows are in memory by the time that somebody follows it.
        job_index().begin()
    keep = "private, max-age=31536000, immutable" if request.url.query else "no-cache"
    return FileResponse(found, media_type=KINDS[found.suffix], headers={"Cache-Control": keep})
