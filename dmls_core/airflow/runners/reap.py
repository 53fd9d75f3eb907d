"""The monitor DAG's task ``reap``: end trainers whose task no longer runs."""

from __future__ import annotations

from airflow.sdk import BaseOperator, Context

from dmls_core.airflow.runners.runner import load_runner
from dmls_core.airflow.settings import airflow_settings
from dmls_core.airflow.task_id import TaskId

ACTIVE_STATES = frozenset({"running", "deferred", "restarting"})


class ReapOperator(BaseOperator):
    """End orphaned trainers of the configured runner."""

    template_fields = ()

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the trainers that were ended."""
        task = context["task_instance"]
        known: dict[tuple[str, str], bool] = {}

        def is_active(dag_id: str, run_id: str) -> bool:
            if (dag_id, run_id) not in known:
                states = task.get_task_states(
                    dag_id=dag_id, run_ids=[run_id], task_ids=[TaskId.SEARCH.value]
                ).get(run_id, {})
                known[dag_id, run_id] = any(state in ACTIVE_STATES for state in states.values())
            return known[dag_id, run_id]

        ended = load_runner(airflow_settings()).reap(is_active)
        for trainer in ended:
            self.log.warning("ended the orphaned trainer %s", trainer)
        return ended
