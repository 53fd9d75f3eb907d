"""Links on Airflow's task pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from dmls_core.airflow.task_id import TaskId

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class MlflowRunLink(BaseOperatorLink):
    """The run's page in MLflow, on ``register`` and the tasks after it."""

    name = "MLflow run"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address that the task ``register`` returned, or nothing before it has."""
        return _answered(ti_key, "url")


class ReportLink(BaseOperatorLink):
    """The run's report, on ``register``, from which on MLflow shows it, and the tasks after it."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address that the task ``register`` returned, or nothing before it has."""
        return _answered(ti_key, "report")


def _answered(ti_key: TaskInstanceKey, key: str) -> str:
    # Airflow asks for a link once, as the task ends: what a later task returns is not known then.
    answer: dict[str, Any] | None = XCom.get_one(
        key="return_value", task_id=TaskId.REGISTER.value, dag_id=ti_key.dag_id, run_id=ti_key.run_id
    )
    return answer.get(key, "") if answer else ""


LINKS = (MlflowRunLink(), ReportLink())
"""Of ``register`` and every task after it."""
