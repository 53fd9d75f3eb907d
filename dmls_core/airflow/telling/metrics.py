"""``/dmls-metrics`` of Airflow's API server: DMLS's metrics for Prometheus.

Counters and drift come from the store, runs from Airflow's database. Nothing else has to run: no StatsD, no
collector. Who asks shows a token, since Prometheus cannot log in to Airflow.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import DmlsError
from dmls_core.settings import METRICS_TOKEN

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from dmls_core.monitoring.exposition import JobMetrics
    from dmls_core.monitoring.families import Family

PREFIX = "/dmls-metrics"
FINISHED = ("success", "failed")


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request. The plugin is loaded by every Airflow process: nothing is imported before."""
    from starlette.requests import Request

    if scope["type"] == "http":
        response = await answer(Request(scope))
        await response(scope, receive, send)


async def answer(request: Request) -> Response:
    """Return what a scrape gets."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import PlainTextResponse, Response

    from dmls_core.monitoring.families import CONTENT_TYPE

    token = os.environ.get(METRICS_TOKEN, "")
    if not token:
        return PlainTextResponse(f"set {METRICS_TOKEN} for Airflow's API server\n", 403)
    shown = request.headers.get("authorization", "")
    if not secrets.compare_digest(shown.encode(), f"Bearer {token}".encode()):
        return PlainTextResponse(
            f"send the value of {METRICS_TOKEN} as a bearer token\n", 401, {"WWW-Authenticate": "Bearer"}
        )
    try:
        text = await run_in_threadpool(metrics_text)
    except DmlsError as error:
        return PlainTextResponse(f"{error}\n", 503)
    return Response(text, media_type=CONTENT_TYPE)


def metrics_text() -> str:
    """Return everything that Prometheus is told.

    Raises:
        StoreError: the store does not answer.
    """
    from dmls_core.monitoring.families import exposition_text

    return exposition_text([*_job_metrics().families(), *run_families()])


def run_families() -> Iterator[Family]:
    """Yield how many runs of each job there are in Airflow's database, and how long they took."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    from dmls_core.monitoring.families import Family

    seconds = Family("dmls_run_duration_seconds", "summary", "Duration of finished runs.")
    open_runs = Family("dmls_runs_open", "gauge", "Runs that are queued or run.")
    query = (
        select(DagRun.dag_id, DagRun.state, func.count(), func.sum(DagRun.duration))
        .where(DagRun.dag_id.like("dmls.%.%"))
        .group_by(DagRun.dag_id, DagRun.state)
        .order_by(DagRun.dag_id, DagRun.state)
    )
    with create_session() as session:
        for dag_id, state, number, duration in session.execute(query):
            _, team, job = dag_id.split(".", 2)
            labels = {"team": team, "job": job, "state": str(state)}
            if state in FINISHED:
                seconds.add(float(duration or 0), labels, "_sum").add(number, labels, "_count")
            else:
                open_runs.add(number, labels)
    yield seconds
    yield open_runs


@cache
def _job_metrics() -> JobMetrics:
    from dmls_core.monitoring.exposition import JobMetrics

    return JobMetrics(open_root(airflow_settings()))


METRICS_APPS: list[dict[str, Any]] = [{"app": app, "url_prefix": PREFIX, "name": "DMLS metrics"}]
"""As ``AirflowPlugin.fastapi_apps`` takes it."""
