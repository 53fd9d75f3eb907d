"""The Airflow plugin: registers the timetables that job DAGs are scheduled by."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from dmls_core.orchestration.links import MlflowRunLink, ReportLink
from dmls_core.orchestration.priority import LeadersFirst
from dmls_core.orchestration.timetable import IntervalTimetable, SubmissionTimetable


class DmlsPlugin(AirflowPlugin):
    """What Airflow's scheduler and API server must know of DMLS."""

    name = "dmls"
    timetables = [SubmissionTimetable, IntervalTimetable]  # noqa: RUF012 - as Airflow declares it
    priority_weight_strategies = [LeadersFirst]  # noqa: RUF012
    operator_extra_links = [MlflowRunLink(), ReportLink()]  # noqa: RUF012
