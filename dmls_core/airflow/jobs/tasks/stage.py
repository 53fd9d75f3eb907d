"""The task ``stage``: load the model into Triton as a candidate."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from dmls_core.airflow.jobs.tasks.base import JobRun, JobTask
from dmls_core.airflow.links import LINKS
from dmls_core.airflow.runs.job import download_model


class StageOperator(JobTask):
    """Write the candidate into the Triton repository and load it; the served version does not change."""

    operator_extra_links = LINKS

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the candidate's version, and the verified one before it."""
        run.reporter.running("deploying")
        with tempfile.TemporaryDirectory(prefix="dmls-stage-") as scratch:
            folder = download_model(run.job, run.store, Path(scratch))
            with run.deployment() as deployment:
                staged = deployment.stage(folder, run.job.run_key)
        self.log.info("Triton loaded %s version %s as candidate", staged.model, staged.version)
        return {"version": staged.version, "previous": staged.previous}
