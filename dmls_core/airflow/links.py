"""Links on Airflow's task pages. Airflow's serialized DAGs store their class paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from dmls_core.airflow.task_id import TaskId

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class MlflowRunLink(BaseOperatorLink):
    """The run's page in MLflow, shown on ``register`` and the tasks after it."""

    name = "MLflow run"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the URL that ``register`` returned, or an empty string before that."""
        return _registered(ti_key, "url")


class ReportLink(BaseOperatorLink):
    """The run's report in MLflow, shown on ``register`` and the tasks after it."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the URL that ``register`` returned, or an empty string before that."""
        return _registered(ti_key, "report")


def _registered(ti_key: TaskInstanceKey, key: str) -> str:
    # Airflow asks for a link once, when the task ends: it cannot depend on a later task's result.
    result: dict[str, Any] | None = XCom.get_one(
        key="return_value", task_id=TaskId.REGISTER.value, dag_id=ti_key.dag_id, run_id=ti_key.run_id
    )
    return result.get(key, "") if result else ""


LINKS = (MlflowRunLink(), ReportLink())
