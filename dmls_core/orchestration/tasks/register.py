"""``register``: record the run and its model in MLflow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from dmls_core.orchestration.links import MlflowRunLink
from dmls_core.orchestration.model_files import download_run
from dmls_core.orchestration.tasks.base import JobRun, JobTask
from dmls_core.orchestration.trainer.outcome import read_result


class RegisterOperator(JobTask):
    """Logs the run, its trials and its model to MLflow; the model's version becomes the challenger."""

    operator_extra_links = (MlflowRunLink(),)

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the MLflow run's id and address, and the registered model's version."""
        from dmls_core.tracking import log_run

        result = read_result(run.job, run.store)
        run.reporter.running("recording the run in MLflow")
        with tempfile.TemporaryDirectory(prefix="dmls-register-") as scratch:
            folder = download_run(run.job, run.store, Path(scratch))
            tracked = log_run(
                run.settings.mlflow_uri,
                result,
                folder,
                spec=run.job.spec.as_json(),
                airflow_url=run.reporter.links["airflow"],
                public_uri=run.settings.mlflow_public_uri,
            )
        self.log.info("MLflow run: %s", tracked.url)
        return {"run_id": tracked.run_id, "url": tracked.url, "model_version": tracked.model_version}
