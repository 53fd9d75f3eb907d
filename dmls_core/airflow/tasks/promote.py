"""``stage`` and ``promote``: load the candidate beside what is served, prove it, and serve it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.airflow.connections import open_repository
from dmls_core.airflow.links import LINKS
from dmls_core.airflow.notifications import notify
from dmls_core.airflow.run_files import download_model
from dmls_core.airflow.task_id import TaskId
from dmls_core.airflow.tasks.base import JobRun, JobTask
from dmls_core.airflow.tasks.decision import tag_decision
from dmls_core.airflow.tasks.deployment_record import record_deployment
from dmls_core.errors import ServingError

if TYPE_CHECKING:
    from dmls_core.serving import Repository, ServingOptions, TritonClient
    from dmls_core.spec import Spec


class StageOperator(JobTask):
    """Writes the candidate into the Triton repository and has Triton load it; what is served stays."""

    operator_extra_links = LINKS

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the candidate's version, and the verified one before it."""
        from dmls_core.serving import stage

        run.reporter.running("deploying")
        with tempfile.TemporaryDirectory(prefix="dmls-deploy-") as scratch, _triton(run) as triton:
            folder = download_model(run.job, run.store, Path(scratch))
            deployment = stage(*triton, run.job.model_name, folder)
        self.log.info("Triton loaded %s version %s as candidate", run.job.model_name, deployment.version)
        return {"version": deployment.version, "previous": deployment.previous}


class PromoteOperator(JobTask):
    """Sends golden rows through the candidate's endpoint; then, and only then, it is served and champion."""

    operator_extra_links = LINKS

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return how many rows agreed over HTTP and gRPC, and how long one takes."""
        from dmls_core.monitoring.counters import count
        from dmls_core.serving import go_live, measure
        from dmls_core.tracking import promote

        deployment, tracked = run.result_of(TaskId.STAGE), run.result_of(TaskId.REGISTER)
        name, version = run.job.model_name, deployment["version"]

        def make_champion(served: int, _: int | None) -> None:
            by = f"Airflow run {run.context['run_id']}"
            promote(
                run.settings.mlflow_uri, name, tracked["model_version"], triton_version=served, deployed_by=by
            )
            tag_decision(run)

        try:
            with _triton(run) as triton:
                choice = measure(*triton, name, version)
                self.log.info("%s version %s is served with %s", name, version, choice.text)
                done = go_live(
                    *triton,
                    name,
                    version,
                    max_latency_ms=run.job.spec.deploy.max_latency_ms,
                    keep=run.settings.keep_versions,
                    options=serving_options(run.job.spec),
                    finish=make_champion,
                )
        except ServingError:
            count(run.store, run.job.team, run.job.name, "verification_failures")
            raise
        count(run.store, run.job.team, run.job.name, "deployments")
        record_deployment(run, done, choice)
        evaluated = run.result_of(TaskId.EVALUATE)
        run.reporter.links |= {
            "mlflow": tracked["url"],
            "report": tracked["report"],
            "model": f"http://{run.settings.triton_http.partition(',')[0]}/v2/models/{name}",
        }
        told = (
            f"deployed as {name} version {version}: {evaluated['metric']} {evaluated['score']:.4f} on rows "
            "that the search never saw"
        )
        run.reporter.report("deployed", told)
        notify(run.job.owner, "deployed", f"{run.job.team}/{run.job.name}", told, run.reporter.links)
        proof = done.proof
        return {"version": version} | (
            {"rows": proof.rows, "milliseconds": proof.milliseconds} if proof else {}
        )


def serving_options(spec: Spec) -> ServingOptions:
    """Return what a spec says of how its model is served: rows are logged where drift is watched."""
    from dmls_core.serving import ServingOptions

    if spec.drift is None:
        return ServingOptions()
    return ServingOptions(log_share=spec.drift.sample, log_leave_out=spec.columns.sensitive)


@contextmanager
def _triton(run: JobRun) -> Iterator[tuple[Repository, tuple[TritonClient, ...]]]:
    """Give the repository and its servers."""
    from dmls_core.serving import triton_servers

    settings = run.settings
    with triton_servers(settings.triton_http, settings.triton_grpc, key=settings.load_key()) as servers:
        yield open_repository(settings), servers
