"""The monitor DAG: looks for drift in what the served models are asked, and starts what specs ask for."""

from __future__ import annotations

import pendulum
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseOperator, Context, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowFailException

from dmls_core.orchestration.connections import open_root
from dmls_core.orchestration.settings import airflow_settings

DAG_ID = "dmls.monitor"

CHECKED = "checked"
"""Key of the XCom with up to where each job was compared, and which jobs could not be."""

NOTE = "Started by dmls.monitor: what the model is asked has drifted from what it was trained on."


class CompareOperator(BaseOperator):
    """Compares every watched job's new requests; a job that cannot be compared hides no other."""

    template_fields = ()

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Return the runs to start, as arguments of Airflow's operator that starts runs."""
        from dmls_core.orchestration.monitor import check_jobs
        from dmls_core.store import layout

        settings = airflow_settings()
        look = check_jobs(open_root(settings), settings.mlflow_uri)
        done = [
            {"team": found.job.team, "name": found.job.name, "seen": found.seen.as_json()}
            for found in look.checked
        ]
        context["task_instance"].xcom_push(key=CHECKED, value={"done": done, "failed": look.failed})
        return [
            {
                "trigger_dag_id": layout.dag_id(found.job.team, found.job.name),
                "trigger_run_id": found.retrain_run_id,
            }
            for found in look.checked
            if found.retrain_run_id
        ]


class SettleOperator(BaseOperator):
    """Notes what was compared: only now, so that a killed comparison is made again."""

    template_fields = ()

    def execute(self, context: Context) -> int:
        """Return the number of jobs that were compared; fail if one could not be."""
        from dmls_core.monitoring.requests import Seen, write_seen

        checked = context["task_instance"].xcom_pull(task_ids="compare", key=CHECKED)
        store = open_root(airflow_settings())
        for job in checked["done"]:
            write_seen(store, job["team"], job["name"], Seen.from_json(job["seen"]))
        if checked["failed"]:
            raise AirflowFailException("not compared: " + "; ".join(checked["failed"]))
        return len(checked["done"])


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
        description="Looks for drift in what the served models are asked",
        default_args={"retries": 3, "retry_delay": pendulum.duration(seconds=30)},
    ) as dag:
        compare = CompareOperator(task_id="compare")
        # A run that exists already is not started again: its id says which champion drifted, on which day.
        TriggerDagRunOperator.partial(
            task_id="retrain", logical_date=None, skip_when_already_exists=True, note=NOTE
        ).expand_kwargs(compare.output)
        compare >> SettleOperator(task_id="settle")
    return dag
