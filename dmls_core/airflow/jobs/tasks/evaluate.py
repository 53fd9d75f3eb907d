"""The task ``evaluate``: check the files and the score of the trained model."""

from __future__ import annotations

from typing import Any

from dmls_core.airflow.jobs.tasks.base import JobRun, JobTask
from dmls_core.airflow.runs.job import read_result
from dmls_core.errors import RejectedModelError


class EvaluateOperator(JobTask):
    """Check the run's files against their checksums and the score against ``[deploy] min_metric``."""

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the candidate's score, comparison and warnings, and whether it is good enough to deploy."""
        result = read_result(run.job, run.store)
        for artifact in result["artifacts"]:
            stored = run.store.head(run.job.run_file(artifact["name"]))
            if stored is None or stored.size != artifact["bytes"]:
                raise RejectedModelError(
                    f"{artifact['name']} of the run is not the file that the trainer wrote; clear `search`"
                )
        floor = run.job.spec.deploy.min_metric
        score, metric = result["score"], result["metric"]
        enough = floor is None or (score >= floor if result["direction"] == "maximize" else score <= floor)
        run.reporter.running(f"trained: {metric} {score:.4f} on the holdout")
        return {
            "score": score,
            "metric": metric,
            "direction": result["direction"],
            "good_enough": enough,
            "comparison": result.get("comparison"),
            "warnings": result.get("warnings") or [],
        }
