"""``/dmls-metrics`` on Airflow's API server: DMLS's metrics for Prometheus.

Counters and comparisons come from the store, runs from Airflow's database; no StatsD or collector is needed.
Prometheus cannot log in to Airflow, so it sends a bearer token.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from functools import cache

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dmls_core.airflow import database
from dmls_core.airflow.settings import airflow_settings, open_root
from dmls_core.errors import DmlsError
from dmls_core.monitoring.prometheus import CONTENT_TYPE, JobMetricsCollector, exposition, process_metrics
from dmls_core.settings import METRICS_TOKEN

_FINISHED = ("success", "failed")


def create_app() -> Starlette:
    """Return the app that the plugin mounts."""
    return Starlette(routes=[Route("/{path:path}", _answer)])


async def _answer(request: Request) -> Response:
    """Return the metrics, or an error if the bearer token is missing or wrong."""
    token = os.environ.get(METRICS_TOKEN, "")
    if not token:
        return PlainTextResponse(f"set {METRICS_TOKEN} for Airflow's API server\n", 403)
    shown = request.headers.get("authorization", "")
    if not secrets.compare_digest(shown.encode(), f"Bearer {token}".encode()):
        return PlainTextResponse(
            f"send the value of {METRICS_TOKEN} as a bearer token\n", 401, {"WWW-Authenticate": "Bearer"}
        )
    try:
        text = await run_in_threadpool(_metrics_text)
    except DmlsError as error:
        return PlainTextResponse(f"{error}\n", 503)
    return Response(text, media_type=CONTENT_TYPE)


def _metrics_text() -> str:
    """Return all metrics in the exposition format; raise ``StoreError`` if the store does not answer."""
    processes = process_metrics(open_root(airflow_settings()))
    return exposition([*_job_metrics().collect(), *processes, *run_metrics()])


def run_metrics() -> Iterator[Metric]:
    """Yield the number and duration of each job's runs from Airflow's database."""
    labels = ("team", "job", "state")
    durations = SummaryMetricFamily("dmls_run_duration_seconds", "Duration of finished runs.", labels=labels)
    open_runs = GaugeMetricFamily("dmls_runs_open", "Queued and running runs.", labels=labels)
    with database.create_session() as session:
        for dag_id, state, number, seconds in database.run_totals(session):
            _, team, job = dag_id.split(".", 2)
            values = (team, job, state)
            if state in _FINISHED:
                durations.add_metric(values, count_value=number, sum_value=seconds)
            else:
                open_runs.add_metric(values, number)
    yield durations
    yield open_runs


@cache
def _job_metrics() -> JobMetricsCollector:
    return JobMetricsCollector(open_root(airflow_settings()))
