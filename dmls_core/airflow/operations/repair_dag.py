"""The repair DAG: finishes or undoes the deployments of killed publishers, within a minute.

It also reloads models whose process ended, if the trigger could not.

The monitor DAG has the same task for all models: it finds what a user changed in MLflow, or a server lost.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG, Asset, AssetWatcher, BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dmls_core.airflow.asset_events import event_entries
from dmls_core.airflow.operations.interruption_trigger import interruption_trigger
from dmls_core.airflow.settings import airflow_settings, open_repository, open_root

DAG_ID = "dmls.repair"

INTERRUPTIONS = "dmls-interruptions"
"""Name of the asset whose watcher starts the repair."""


class RepairOperator(BaseOperator):
    """Make Triton serve MLflow's champions; a failing model does not stop the others."""

    template_fields = ()

    def execute(self, context: Context) -> list[str]:
        """Return one line for each repair; fail if a model could not be repaired.

        Models whose process ended are reloaded. Then only the models of the triggering events are looked at,
        or all if no event started this run.
        """
        from dmls_core.monitoring.processes import ProcessWatch
        from dmls_core.monitoring.reconcile import reconcile_all
        from dmls_core.serving import triton_servers
        from dmls_core.serving.repository.locks import LEASE_SECONDS
        from dmls_core.tracking.registry import champion_in_triton, champions

        settings = airflow_settings()
        if not (settings.mlflow_uri and settings.triton_http and settings.triton_repository):
            raise AirflowSkipException(
                "mlflow_uri, triton_http or triton_repository is not set in the bundle's settings"
            )
        interrupted = sorted(set(event_entries(context, "models")))
        ended = event_entries(context, "processes")

        def look_up() -> dict[str, int | None]:
            if not interrupted:
                return champions(settings.mlflow_uri)
            return {name: champion_in_triton(settings.mlflow_uri, name) for name in interrupted}

        addresses = (settings.triton_http, settings.triton_grpc)
        with triton_servers(*addresses, key=settings.load_key()) as servers:
            store, repository = open_root(settings), open_repository(settings)
            result = ProcessWatch(store, repository).look(servers)
            if interrupted or not ended:
                result += reconcile_all(
                    store,
                    repository,
                    servers,
                    look_up,
                    # The lock of a killed publisher expires.
                    timeout=LEASE_SECONDS if interrupted else 0.0,
                )
        if result.failures:
            repaired = f"; repaired: {'; '.join(result.repaired)}" if result.repaired else ""
            raise AirflowFailException("not repaired: " + "; ".join(result.failures) + repaired)
        return result.repaired


def repair_dag() -> DAG:
    """Return the repair DAG. Its asset must be declared in one DAG file only, or events are lost."""
    watcher = AssetWatcher(name="dmls-repository", trigger=interruption_trigger())
    with DAG(
        DAG_ID,
        schedule=[Asset(INTERRUPTIONS, watchers=[watcher])] if airflow_settings().triton_repository else None,
        start_date=pendulum.datetime(2026, 1, 1),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags={"dmls"},
        description="Finishes or undoes interrupted deployments, reloads models whose process ended",
    ) as dag:
        RepairOperator(task_id="repair")
    return dag
