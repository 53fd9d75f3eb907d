"""Build the FastAPI app from its middleware, error handlers, routers, and pages."""

from __future__ import annotations

from fastapi import APIRouter, Depends, FastAPI

from dmls_core import __version__
from dmls_core.web import pages
from dmls_core.web.dependencies import signed_in
from dmls_core.web.error_handlers import add_handlers
from dmls_core.web.middleware import (
    PROBLEM_RESPONSE,
    BodyLimit,
    Pace,
    PredictionCors,
    SameOrigin,
    SecurityHeaders,
    allowed_origins,
)
from dmls_core.web.routers import commands, jobs, keys, platform, predictions, scoring, submissions

API = "/api/v1"

ROUTERS: tuple[APIRouter, ...] = (
    jobs.router,
    jobs.runs_router,
    jobs.reports_router,
    commands.router,
    predictions.router,
    predictions.rows_router,
    scoring.router,
    keys.router,
    submissions.router,
    platform.router,
)
"""Routers of the REST API, in the order of its reference. Add a new router here."""

PAGES: tuple[APIRouter, ...] = (pages.router, pages.job_router)
"""Routers of the pages. Add a new page here."""

WITHOUT_LOGIN = (predictions.rows_router,)
"""Routers that check access themselves, because they accept API keys, too."""

DESCRIPTION = """\
REST API of the DMLS page in Airflow. Sign in as for Airflow's own API: send a token of `POST /auth/token` as
`Authorization: Bearer ...`, or use the browser's session. Access to a job is access to its DAG
`dmls.<team>.<name>`. Errors are problem details (RFC 9457).
"""


def create_app() -> FastAPI:
    """Return the app that the plugin mounts; every route requires a login, static files included."""
    app = FastAPI(
        title="DMLS",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    login = [Depends(signed_in)]
    for router in ROUTERS:
        checks = [] if router in WITHOUT_LOGIN else login
        app.include_router(router, prefix=API, dependencies=checks, responses={"default": PROBLEM_RESPONSE})
    for router in PAGES:
        app.include_router(router, dependencies=login, include_in_schema=False)
    add_handlers(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Pace)
    origins = allowed_origins()
    app.add_middleware(SameOrigin, origins=origins)
    app.add_middleware(PredictionCors, origins=origins)
    app.add_middleware(SecurityHeaders)
    return app
