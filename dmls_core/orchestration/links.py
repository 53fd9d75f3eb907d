"""Links on Airflow's task pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class MlflowRunLink(BaseOperatorLink):
    """The run's page in MLflow, on the task ``register``."""

    name = "MLflow run"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address that the task ``register`` returned, or nothing before it has."""
        return _answered(ti_key, "url")


class ReportLink(BaseOperatorLink):
    """The run's report, on the task ``register``: from then on MLflow shows it."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address that the task ``register`` returned, or nothing before it has."""
        return _answered(ti_key, "report")


def _answered(ti_key: TaskInstanceKey, key: str) -> str:
    # Airflow asks for a link once, as the task ends: only what the task itself knows can be in it.
    answer: dict[str, Any] | None = XCom.get_value(ti_key=ti_key, key="return_value")
    return answer.get(key, "") if answer else ""
