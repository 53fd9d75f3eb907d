"""Render pages from templates; every value is escaped."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from dmls_core.html import STATIC as CHARTS
from dmls_core.html import create_environment
from dmls_core.html.formats import ago, brief, decimals, duration, file_size
from dmls_core.web.services.sparkline import sparkline
from dmls_core.web.services.submissions import describe_formats, mark_floats

_HERE = Path(__file__).parent
TEMPLATES = _HERE / "templates"
STATIC = _HERE / "static"

_NAVIGATION = (("Jobs", "/"), ("Submit", "/submit"), ("Platform", "/platform"), ("API", "/api"))
"""(Label, path below the app) of the page's navigation."""


@cache
def environment() -> Environment:
    """Return the Jinja environment of the templates."""
    templates = create_environment(TEMPLATES)
    templates.globals |= {"navigation": _NAVIGATION, "sparkline": sparkline, "data_formats": describe_formats}
    templates.filters |= _FILTERS
    return templates


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


def static_files() -> dict[str, Path]:
    """Return the app's static files, and those that draw charts, by name."""
    return {path.name: path for folder in (CHARTS, STATIC) for path in folder.iterdir()}


def _digest(name: str) -> str:
    """Return a hash of a static file, so that browsers can cache it under its URL."""
    return hashlib.sha256(static_files()[name].read_bytes()).hexdigest()[:12]


_STATE_CLASSES = {
    state: css_class
    for css_class, states in {
        "good": ("deployed", "success", "finished", "complete", "steady", "ok", "scored"),
        "bad": ("rejected", "failed", "drifted", "decayed", "broken"),
        "warn": ("stopped", "waiting", "queued", "scheduled", "up_for_retry", "missing", "slow"),
        "wait": ("awaiting approval", "deferred", "awaiting_input"),
        "busy": ("running", "scoring"),
    }.items()
    for state in states
}
"""CSS class of each state's badge; the badge always shows the state as text, too."""


def state_class(state: str) -> str:
    """Return the CSS class of a state's badge."""
    return _STATE_CLASSES.get(state, "")


def timestamp(value: str | datetime | None) -> str:
    """Return a time as ``2026-01-31 14:05:09 UTC``; empty for no time."""
    if not value:
        return ""
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def number(value: object) -> str:
    """Return a number with four decimals, fewer from 1,000 up; tiny and huge ones with an exponent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if 1e3 <= size < 1e10:
        return f"{value:,.{decimals(size)}f}"
    return f"{value:.4f}" if 1e-3 <= size < 1e3 or value == 0 else f"{value:.4g}"


def parameter(value: object) -> str:
    """Return the value of a hyperparameter as in a spec, where 1.0 and 1 differ."""
    if isinstance(value, float):
        text = f"{value:.6g}"
        return f"{text}.0" if text.lstrip("-").isdigit() else text
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def cell(value: object) -> str:
    """Return a value of a table: whole numbers without decimals, and years without a comma."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e4:
        return f"{value:.0f}"
    return brief(value).removesuffix(".0") if isinstance(value, float) else str(value)


def as_json(value: object, indent: int | None = None) -> str:
    """Return a value as readable JSON."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


_FILTERS = {
    function.__name__: function
    for function in (
        ago,
        as_json,
        cell,
        duration,
        file_size,
        mark_floats,
        number,
        parameter,
        state_class,
        timestamp,
    )
}
