"""The monitor DAG: drift, delayed labels, retraining, and what needs repair or deletion on the platform."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pendulum
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseOperator, Context, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dmls_core.airflow.operations.repair_dag import RepairOperator
from dmls_core.airflow.runners.runner import load_runner
from dmls_core.airflow.settings import airflow_settings, open_root
from dmls_core.airflow.shards import written_jobs
from dmls_core.airflow.task_id import TaskId
from dmls_core.hardware import parse_memory
from dmls_core.store import JobRecord, Registry
from dmls_core.store.registry import cached
from dmls_core.store.snapshots import Snapshots
from dmls_core.store.source_snapshots import delete_old_snapshots

_DAG_ID = "dmls.monitor"

_RESULTS = "results"
"""Key of the XCom with the new cursors and the failures of ``compare``."""

_NOTE = "Started by dmls.monitor: the data has drifted from the training data, or the model has decayed."


class CollectOperator(BaseOperator):
    """Collect Triton's inference log into the store."""

    template_fields = ()

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the collected rows and discarded files by model, and the number of deleted old objects."""
        from dmls_core.monitoring.inference_log import collect

        settings = airflow_settings()
        if not settings.inference_log:
            raise AirflowSkipException("inference_log is not set in the bundle's settings")
        result = collect(open_root(settings), Path(settings.inference_log))
        return {"rows": dict(result.rows), "dropped": dict(result.dropped), "removed": result.removed}


class CompareOperator(BaseOperator):
    """Compare new data of every monitored job; a failing job does not stop the others."""

    template_fields = ()

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Return the runs to start, as arguments of ``TriggerDagRunOperator``."""
        from dmls_core.airflow.notifiers import notify
        from dmls_core.monitoring.monitor_run import run_monitor

        settings = airflow_settings()
        run = run_monitor(
            open_root(settings),
            settings.mlflow_uri,
            notify,
            parse_memory(settings.memory),
            _known_jobs(context),
        )
        count = len(run.drift_checks) + run.label_checks
        context["task_instance"].xcom_push(
            key=_RESULTS, value={"states": run.states, "count": count, "failures": run.failures}
        )
        return [{"trigger_dag_id": dag, "trigger_run_id": run_id} for dag, run_id in sorted(run.retrains)]


class SettleOperator(BaseOperator):
    """Write the cursors after ``compare``, so that a killed comparison is repeated."""

    template_fields = ()

    def execute(self, context: Context) -> int:
        """Return the number of comparisons; fail if a comparison has failed."""
        results = context["task_instance"].xcom_pull(task_ids="compare", key=_RESULTS)
        store = open_root(airflow_settings())
        for key, state in results["states"].items():
            store.put(key, json.dumps(state).encode())
        if results["failures"]:
            raise AirflowFailException("not compared: " + "; ".join(results["failures"]))
        count: int = results["count"]
        return count


def monitor_dag() -> DAG:
    """Return the monitor DAG."""
    cron = airflow_settings().monitor_cron
    with DAG(
        _DAG_ID,
        schedule=CronTriggerTimetable(cron, timezone="UTC") if cron else None,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags={"dmls"},
        description="Checks new data and served models for drift and decay",
        default_args={"retries": 3, "retry_delay": pendulum.duration(seconds=30)},
    ) as dag:
        compare = CompareOperator(task_id="compare", trigger_rule="all_done")
        # Run ids name the champion and the day, so a run that exists already is not started again.
        TriggerDagRunOperator.partial(
            task_id="retrain", logical_date=None, skip_when_already_exists=True, note=_NOTE
        ).expand_kwargs(compare.output)
        compare >> SettleOperator(task_id="settle")
        # Requests in the store are compared even if nothing was collected.
        CollectOperator(task_id="collect") >> compare
        RepairOperator(task_id="repair")
        ReapOperator(task_id="reap")
        CleanOperator(task_id="clean")
    return dag


_ACTIVE_STATES = frozenset({"running", "deferred", "restarting"})


class ReapOperator(BaseOperator):
    """End orphaned trainers of the configured runner."""

    template_fields = ()

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the trainers that were ended."""
        task = context["task_instance"]
        active: dict[tuple[str, str], bool] = {}

        def is_active(dag_id: str, run_id: str) -> bool:
            if (dag_id, run_id) not in active:
                states = task.get_task_states(
                    dag_id=dag_id, run_ids=[run_id], task_ids=[TaskId.SEARCH.value]
                ).get(run_id, {})
                active[dag_id, run_id] = any(state in _ACTIVE_STATES for state in states.values())
            return active[dag_id, run_id]

        ended = load_runner(airflow_settings()).reap(is_active)
        for trainer in ended:
            self.log.warning("ended the orphaned trainer %s", trainer)
        return ended


class CleanOperator(BaseOperator):
    """Delete states of the registry and snapshots of sources that no run needs any more."""

    template_fields = ()

    def execute(self, context: Context) -> int:
        """Return the number of deleted objects."""
        store = open_root(airflow_settings())
        cache = cached(record for record, _ in _known_jobs(context))
        records = [record for record in Registry(store).jobs(cache) if record.state == "active"]
        now = datetime.now(UTC)
        return Snapshots(store).delete_old(records, now) + delete_old_snapshots(store, now)


def _known_jobs(context: Context) -> list[tuple[JobRecord, dict[str, Any]]]:
    """Return what the DAG processor has written on this host: reading thousands of jobs takes a minute."""
    bundle = getattr(context["task_instance"], "bundle_instance", None)
    folder = getattr(bundle, "tracking", None)  # of a DmlsBundle
    return written_jobs(folder) if folder else []
