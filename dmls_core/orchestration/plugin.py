"""The Airflow plugin: registers the timetable that job DAGs are scheduled by."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from dmls_core.orchestration.links import MlflowRunLink
from dmls_core.orchestration.timetable import SubmissionTimetable


class DmlsPlugin(AirflowPlugin):
    """What Airflow's scheduler and API server must know of DMLS."""

    name = "dmls"
    timetables = [SubmissionTimetable]  # noqa: RUF012 - as Airflow declares it
    operator_extra_links = [MlflowRunLink()]  # noqa: RUF012
