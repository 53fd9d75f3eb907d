"""Pages from templates: everything is escaped unless a template's author says otherwise."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dmls_core.web import words
from dmls_core.web.sparkline import sparkline

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"
STATIC = HERE / "static"

NAVIGATION = (("Jobs", "/"), ("Submit", "/submit"), ("Platform", "/platform"), ("API", "/api"))
"""(Label, path below the app) of the page's own navigation."""


@cache
def environment() -> Environment:
    """Return the templates' environment."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {"navigation": NAVIGATION, "sparkline": sparkline}
    for name in ("ago", "as_json", "moment", "number", "setting", "size", "span", "state_kind"):
        found.filters[name] = getattr(words, name)
    return found


def render(request: Request, template: str, *, status_code: int = 200, **values: Any) -> HTMLResponse:
    """Answer with a page.

    Args:
        request: what is answered.
        template: file in ``templates/``; it extends ``base.html``.
        status_code: of the answer.
        values: what the template shows, besides ``base`` (the app's address), ``path`` (the page's, below
            it) and ``asset`` (name of a static file -> its address).
    """
    base = base_path(request)
    values |= {
        "base": base,
        "path": request.scope["path"].removeprefix(base),
        "asset": lambda name: f"{base}/static/{name}?{_digest(name)}",
    }
    return HTMLResponse(environment().get_template(template).render(values), status_code)


def base_path(request: Request) -> str:
    """Return the path at which the app is mounted, as the browser sees it."""
    path: str = request.scope.get("root_path", "")
    return path


def _digest(name: str) -> str:
    """Return what changes when the file does, so that browsers may keep it."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
