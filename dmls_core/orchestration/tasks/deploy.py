"""``deploy`` and ``verify``: put the candidate behind Triton, and prove it there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from dmls_core.errors import ServingError
from dmls_core.orchestration.model_files import download_model
from dmls_core.orchestration.tasks.base import JobRun, JobTask


class DeployOperator(JobTask):
    """Publishes the candidate in the Triton repository and has Triton load it."""

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the version that Triton loaded, and the one that it served before."""
        from dmls_core.serving import Repository, TritonClient, deploy

        run.reporter.running("deploying")
        with tempfile.TemporaryDirectory(prefix="dmls-deploy-") as scratch:
            folder = download_model(run.job, run.store, Path(scratch))
            with TritonClient(run.settings.triton_http, run.settings.triton_grpc) as client:
                repository = Repository(run.settings.triton_repository)
                deployment = deploy(repository, client, run.job.model_name, folder)
        self.log.info("Triton loaded %s version %s", run.job.model_name, deployment.version)
        return {"version": deployment.version, "previous": deployment.previous}


class VerifyOperator(JobTask):
    """Sends the golden rows through the live endpoint; then, and only then, the model is champion."""

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return how many rows agreed over HTTP and gRPC."""
        from dmls_core.serving import Repository, TritonClient, rollback_to, verify
        from dmls_core.tracking import promote

        deployment, tracked = run.result_of("deploy"), run.result_of("register")
        name, version = run.job.model_name, deployment["version"]
        repository = Repository(run.settings.triton_repository)
        with TritonClient(run.settings.triton_http, run.settings.triton_grpc) as client:
            try:
                checked = verify(repository, client, name, version)
            except ServingError:
                rollback_to(repository, client, name, deployment["previous"])
                raise
        promote(run.settings.mlflow_uri, name, tracked["model_version"], triton_version=version)
        evaluated = run.result_of("evaluate")
        run.reporter.links |= {
            "mlflow": tracked["url"],
            "model": f"http://{run.settings.triton_http}/v2/models/{name}",
        }
        run.reporter.report(
            "deployed",
            f"deployed as {name} version {version}: {evaluated['metric']} {evaluated['score']:.4f} on rows "
            "that the search never saw",
        )
        return {"version": version, "rows": checked}
