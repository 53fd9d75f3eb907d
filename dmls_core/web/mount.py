"""What the plugin gives Airflow: the app, built at its first request."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from dmls_core.web import AIRFLOW, PREFIX


class LazyApp:
    """An ASGI app that imports FastAPI, the templates and the rest when it is first asked.

    The plugin is loaded by every Airflow process, and only the API server serves pages.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        # Not in the event loop: it takes seconds, for which Airflow would answer nobody.
        app = self._app if self._app is not None else await asyncio.to_thread(self._build)
        await app({**scope, AIRFLOW: scope.get("app")}, receive, send)

    def _build(self) -> ASGIApp:
        with self._lock:
            if self._app is not None:
                return self._app
            from dmls_core.web.app import create_app

            self._app = app = create_app()
            return app


FASTAPI_APPS: list[dict[str, Any]] = [{"app": LazyApp(), "url_prefix": PREFIX, "name": "DMLS"}]
"""As ``AirflowPlugin.fastapi_apps`` takes it."""

EXTERNAL_VIEWS: list[dict[str, Any]] = [
    {
        "name": "DMLS",
        "href": "dmls/",
        "destination": "nav",
        "url_route": "dmls",
        "nav_top_level": True,
        "icon": "dmls/static/icon.svg",
        "icon_dark_mode": "dmls/static/icon-dark.svg",
    }
]
"""As ``AirflowPlugin.external_views`` takes it: one entry in the navigation."""
