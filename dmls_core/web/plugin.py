"""The Airflow plugin: timetables, priorities, links, and the DMLS page."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from dmls_core.airflow.links import MlflowRunLink, ReportLink
from dmls_core.airflow.metrics_endpoint import METRICS_APPS
from dmls_core.airflow.priority import LeaderPriorityStrategy
from dmls_core.airflow.timetables import IntervalTimetable, SubmissionTimetable
from dmls_core.web.mount import EXTERNAL_VIEWS, FASTAPI_APPS


class DmlsPlugin(AirflowPlugin):
    """What Airflow's scheduler and API server must know of DMLS."""

    name = "dmls"
    timetables = [SubmissionTimetable, IntervalTimetable]  # noqa: RUF012 - as Airflow declares it
    priority_weight_strategies = [LeaderPriorityStrategy]  # noqa: RUF012
    operator_extra_links = [MlflowRunLink(), ReportLink()]  # noqa: RUF012
    fastapi_apps = [*FASTAPI_APPS, *METRICS_APPS]  # noqa: RUF012
    external_views = EXTERNAL_VIEWS
