"""The monitor DAG: looks for drift and decay in what is new of each job, and starts what specs ask for."""

from __future__ import annotations

import json

import pendulum
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseOperator, Context, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowFailException

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.monitor.upkeep_tasks import CollectOperator, RepairOperator
from dmls_core.airflow.runners.reap import ReapOperator
from dmls_core.airflow.settings import airflow_settings
from dmls_core.hardware import parse_memory

DAG_ID = "dmls.monitor"

CHECKED = "checked"
"""Key of the XCom with up to where was compared, and which jobs could not be."""

NOTE = (
    "Started by dmls.monitor: data has drifted from what the model was trained on, or the model has decayed."
)


class CompareOperator(BaseOperator):
    """Compares what is new of every watched job; a job that cannot be compared hides no other."""

    template_fields = ()

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Return the runs to start, as arguments of Airflow's operator that starts runs."""
        from dmls_core.airflow.monitor.check import check_jobs

        settings = airflow_settings()
        look = check_jobs(open_root(settings), settings.mlflow_uri, parse_memory(settings.memory))
        context["task_instance"].xcom_push(
            key=CHECKED,
            value={"states": look.states, "count": len(look.checked) + look.judged, "failed": look.failed},
        )
        return [
            {"trigger_dag_id": dag_id, "trigger_run_id": run_id} for dag_id, run_id in sorted(look.retrains)
        ]


class SettleOperator(BaseOperator):
    """Notes what was compared: only now, so that a killed comparison is made again."""

    template_fields = ()

    def execute(self, context: Context) -> int:
        """Return the number of comparisons; fail if one could not be made."""
        checked = context["task_instance"].xcom_pull(task_ids="compare", key=CHECKED)
        store = open_root(airflow_settings())
        for key, state in checked["states"].items():
            store.put(key, json.dumps(state).encode())
        if checked["failed"]:
            raise AirflowFailException("not compared: " + "; ".join(checked["failed"]))
        count: int = checked["count"]
        return count


def monitor_dag() -> DAG:
    """Build the monitor DAG."""
    cron = airflow_settings().monitor_cron
    with DAG(
        DAG_ID,
        schedule=CronTriggerTimetable(cron, timezone="UTC") if cron else None,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags={"dmls"},
        description="Looks for drift in new data and in what the served models are asked",
        default_args={"retries": 3, "retry_delay": pendulum.duration(seconds=30)},
    ) as dag:
        compare = CompareOperator(task_id="compare", trigger_rule="all_done")
        # A run that exists already is not started again: its id says which champion drifted, on which day.
        TriggerDagRunOperator.partial(
            task_id="retrain", logical_date=None, skip_when_already_exists=True, note=NOTE
        ).expand_kwargs(compare.output)
        compare >> SettleOperator(task_id="settle")
        # Requests are compared whether or not there are new ones to fetch, or the fetching failed.
        CollectOperator(task_id="collect") >> compare
        RepairOperator(task_id="repair")
        ReapOperator(task_id="reap")
    return dag
