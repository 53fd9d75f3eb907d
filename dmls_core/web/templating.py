"""Render pages from templates; every value is escaped."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from dmls_core.html import create_environment
from dmls_core.web.filters import FILTERS
from dmls_core.web.services.charts import sparkline

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"
STATIC = HERE / "static"

NAVIGATION = (("Jobs", "/"), ("Submit", "/submit"), ("Platform", "/platform"), ("API", "/api"))
"""(Label, path below the app) of the page's navigation."""


@cache
def environment() -> Environment:
    """Return the Jinja environment of the templates."""
    found = create_environment(TEMPLATES)
    found.globals |= {"navigation": NAVIGATION, "sparkline": sparkline}
    found.filters |= FILTERS
    return found


def render(request: Request, template: str, *, status_code: int = 200, **values: Any) -> HTMLResponse:
    """Return the page of ``template``, a file in ``templates/`` that extends ``base.html``.

    Its variables are ``values``, ``base`` (URL path of the app), ``path`` (path of the page below it), and
    ``asset`` (function from the name of a static file to its URL).
    """
    base = base_path(request)
    values |= {
        "base": base,
        "path": request.scope["path"].removeprefix(base),
        "asset": lambda name: f"{base}/static/{name}?{_digest(name)}",
    }
    return HTMLResponse(environment().get_template(template).render(values), status_code)


def base_path(request: Request) -> str:
    """Return the URL path at which the app is mounted."""
    path: str = request.scope.get("root_path", "")
    return path


def _digest(name: str) -> str:
    """Return a hash of a static file, so that browsers can cache it under its URL."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
