"""Airflow plugin that mounts the web app."""

from __future__ import annotations

import asyncio
import threading
from pkgutil import resolve_name

from airflow.plugins_manager import AirflowPlugin
from starlette.types import ASGIApp, Receive, Scope, Send

from dmls_core.airflow.former_names import under_former_name
from dmls_core.airflow.jobs.priority import LeaderPriorityStrategy
from dmls_core.airflow.jobs.timetables import IntervalTimetable, SubmissionTimetable
from dmls_core.airflow.links import MlflowRunLink, ReportLink
from dmls_core.airflow.operations.clock_guard import ClockGuard
from dmls_core.web import AIRFLOW, METRICS_PREFIX, PREFIX


class LazyApp:
    """ASGI app that ``factory`` builds at its first request, since only the API server answers requests."""

    def __init__(self, factory: str) -> None:
        self._factory = factory
        self._app: ASGIApp | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        # In a thread: it takes seconds, which would block Airflow's event loop.
        app = self._app if self._app is not None else await asyncio.to_thread(self._build)
        await app({**scope, AIRFLOW: scope.get("app")}, receive, send)

    def _build(self) -> ASGIApp:
        with self._lock:
            if self._app is None:
                self._app = resolve_name(self._factory)()
            return self._app


class DmlsPlugin(AirflowPlugin):
    """Extensions of Airflow's services."""

    name = "dmls"
    timetables = [  # noqa: RUF012 - as Airflow declares it
        SubmissionTimetable,
        IntervalTimetable,
        under_former_name(SubmissionTimetable),
        under_former_name(IntervalTimetable),
    ]
    priority_weight_strategies = [  # noqa: RUF012
        LeaderPriorityStrategy,
        under_former_name(LeaderPriorityStrategy),
    ]
    listeners = [ClockGuard()]  # noqa: RUF012
    operator_extra_links = [MlflowRunLink(), ReportLink()]  # noqa: RUF012
    fastapi_apps = [  # noqa: RUF012
        {"app": LazyApp("dmls_core.web.app:create_app"), "url_prefix": PREFIX, "name": "DMLS"},
        {
            "app": LazyApp("dmls_core.airflow.metrics_endpoint:create_app"),
            "url_prefix": METRICS_PREFIX,
            "name": "DMLS metrics",
        },
    ]
    external_views = [  # noqa: RUF012
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
