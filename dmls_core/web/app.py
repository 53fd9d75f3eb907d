"""The app: security around every route, errors as problem details, the routers."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from dmls_core import __version__
from dmls_core.web.details import PROBLEM_RESPONSE
from dmls_core.web.problems import add_handlers
from dmls_core.web.routes import API, API_ROUTERS, PAGE_ROUTERS
from dmls_core.web.security import BodyLimit, SameSite, SecurityHeaders, signed_in

DESCRIPTION = """\
What the DMLS page in Airflow does, for programs. Sign in as with Airflow's own API: a token of
`POST /auth/token` as `Authorization: Bearer ...`, or the browser's session. What a caller may do with a job
is what Airflow lets them do with its DAG `dmls.<team>.<name>`. Errors are problem details (RFC 9457).
"""


def create_app() -> FastAPI:
    """Return the app that the plugin mounts.

    Every route, pages and static files included, asks for Airflow's login.
    """
    app = FastAPI(
        title="DMLS",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(signed_in)],
    )
    for router in API_ROUTERS:
        app.include_router(router, prefix=API, responses={"default": PROBLEM_RESPONSE})
    for router in PAGE_ROUTERS:
        app.include_router(router, include_in_schema=False)
    add_handlers(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(SameSite)
    app.add_middleware(SecurityHeaders)
    return app
