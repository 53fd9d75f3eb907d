"""The monitor DAG's tasks beside drift: fetch logged requests, mend what is served, reap trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.settings import airflow_settings


class CollectOperator(BaseOperator):
    """Brings what Triton logged of its requests into the store."""

    template_fields = ()

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the rows and the dropped files by model, and how many old objects were removed."""
        from dmls_core.monitoring.inference_log import collect

        settings = airflow_settings()
        if not settings.inference_log:
            raise AirflowSkipException("the bundle entry sets no inference_log: another one fetches requests")
        found = collect(open_root(settings), Path(settings.inference_log))
        return {"rows": dict(found.rows), "dropped": dict(found.dropped), "removed": found.removed}


class RepairOperator(BaseOperator):
    """Has Triton serve MLflow's champions where it does not; a model that cannot be mended hides no other."""

    template_fields = ()

    def execute(self, context: Context) -> list[str]:
        """Return what was mended, a line each; fail if something could not be."""
        from dmls_core.airflow.monitor.upkeep import repair_served

        settings = airflow_settings()
        if not (settings.mlflow_uri and settings.triton_http and settings.triton_repository):
            raise AirflowSkipException("the bundle entry names no MLflow, no Triton or no repository")
        done = repair_served(open_root(settings), settings)
        if done.failed:
            mended = f"; mended: {'; '.join(done.repaired)}" if done.repaired else ""
            raise AirflowFailException("not mended: " + "; ".join(done.failed) + mended)
        return done.repaired
