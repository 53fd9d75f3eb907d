"""The routes of the page, and what each shows of jobs: for tests that ask all of them."""

from __future__ import annotations

import re

from fastapi.routing import APIRoute

from dmls_core.web.app import create_app

LISTS = {"GET /", "GET /api/v1/jobs", "GET /api/v1/queue", "GET /api/v1/platform", "GET /platform"}
"""Routes without a team that show jobs: only those of the caller's team."""

FILTERED = {"GET /api/v1/drops/{team}"}
"""Routes of a team that return an empty list to others, instead of 403."""

VALUES = {"name": "iris", "run_id": "run", "key_id": "0" * 12, "upload": "u", "number": "1"}

ROUTES = [
    (method, route.path)
    for route in create_app().routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods)
]
"""Method and path of each route."""

OF_TEAMS = [(method, path) for method, path in ROUTES if "{team}" in path]


def fill(path: str, team: str) -> str:
    """Return the path of a team's job."""
    return re.sub(r"\{(\w+)\}", lambda match: {**VALUES, "team": team}[match[1]], path)
