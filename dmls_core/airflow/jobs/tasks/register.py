"""The task ``register``: record the run and its model in MLflow."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from dmls_core.airflow.jobs.tasks.base import JobRun, JobTask
from dmls_core.airflow.links import LINKS
from dmls_core.airflow.runs.job import Job, download_run, read_result
from dmls_core.tracking.registry import INTERVAL_END_TAG

_SOURCE_VERSION_TAG = "dmls.source_version"
"""Tag with the version or snapshot id of the lake table that the run has read."""

_CHANGES_TAG = "dmls.changes"
"""Tag with a user's changes for the run, as JSON."""


class RegisterOperator(JobTask):
    """Log the run, its trials and its model to MLflow, and make the model's version the challenger."""

    operator_extra_links = LINKS

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the MLflow run's id, the addresses of its page and report, and the model's version."""
        from dmls_core.serving.deployment.signed_models import check_run_signature
        from dmls_core.tracking.connection import report_url
        from dmls_core.tracking.runs import log_run

        result = read_result(run.job, run.store)
        run.reporter.running("recording the run in MLflow")
        with tempfile.TemporaryDirectory(prefix="dmls-register-") as scratch:
            folder = download_run(run.job, run.store, Path(scratch))
            run_key = run.job.run_key
            check_run_signature(folder / "model", run.job.model_name, run_key, f"the model of run {run_key}")
            tracked = log_run(
                run.settings.mlflow_uri,
                result,
                folder,
                spec=run.job.spec.as_json(),
                airflow_url=run.reporter.links["airflow"],
                public_uri=run.settings.mlflow_public_uri,
                tags=interval_tags(run.job),
                challenger=not run.job.backfill or run.job.deploy,
            )
        self.log.info("MLflow run: %s", tracked.url)
        return {
            "run_id": tracked.run_id,
            "url": tracked.url,
            "report": report_url(tracked.url),
            "model_version": tracked.model_version,
        }


def interval_tags(job: Job) -> dict[str, str]:
    """Return tags for the run's interval, its data, and a user's changes."""
    tags = {_CHANGES_TAG: json.dumps(dict(job.changes))[:5000]} if job.changed else {}
    if job.inputs and job.inputs.source_version is not None:
        tags[_SOURCE_VERSION_TAG] = str(job.inputs.source_version)
    if job.interval is None:
        return tags
    start, end = job.interval
    return tags | {
        "dmls.interval_start": start,
        INTERVAL_END_TAG: end,
        "dmls.window": str(job.spec.data.window),
        "dmls.backfill": "true" if job.backfill else "false",
        "dmls.data": ", ".join(item.key.rpartition("/")[2] for item in job.data)[:5000],
    }
