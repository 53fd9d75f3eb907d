"""The task ``promote``: verify the candidate, serve it and make it the champion."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from dmls_core.airflow.jobs.tasks.base import JobRun, JobTask
from dmls_core.airflow.jobs.tasks.records import record_deployment, tag_decision
from dmls_core.airflow.links import LINKS
from dmls_core.airflow.notifiers import notify
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import ObjectMissingError, ServingError
from dmls_core.serving.triton.addresses import parse_address
from dmls_core.store import layout, write_served

if TYPE_CHECKING:
    from dmls_core.serving import ServingOptions
    from dmls_core.spec import Spec


class PromoteOperator(JobTask):
    """Send golden rows through the candidate's endpoint; serve it and make it champion only if they agree."""

    operator_extra_links = LINKS

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the served version, the rows that agreed over HTTP and gRPC, and the latency of one row."""
        from dmls_core.monitoring.prometheus import count
        from dmls_core.serving import choose_scaling

        version = run.result_of(TaskId.STAGE)["version"]
        try:
            with run.deployment() as deployment:
                choice = choose_scaling(deployment, version)
                self.log.info("%s version %s is served with %s", deployment.model, version, choice.text)
                served = deployment.promote(
                    version,
                    max_latency_ms=run.job.spec.deploy.max_latency_ms,
                    keep=run.settings.keep_versions,
                    options=_serving_options(run.job.spec),
                    finish=partial(_make_champion, run),
                )
                model_json = deployment.repository.read(run.job.model_name, version, "model.json")
        except ServingError:
            count(run.store, run.job.team, run.job.name, "verification_failures")
            raise
        job_key = run.job.team, run.job.name
        by = f"Airflow run {run.context['run_id']}"
        write_served(
            run.store,
            *job_key,
            version,
            model_json,
            by=by,
            run=run.job.run_key,
            trained=_read_training_end(run),
        )
        count(run.store, *job_key, "deployments")
        record_deployment(run, served, choice)
        _report(run, version)
        proof = served.proof
        return {"version": version} | (
            {"rows": proof.rows, "milliseconds": proof.milliseconds} if proof else {}
        )


def _serving_options(spec: Spec) -> ServingOptions:
    """Return the serving options of a spec: rows are logged if drift is monitored."""
    from dmls_core.serving import ServingOptions

    if spec.drift is None:
        return ServingOptions()
    return ServingOptions(log_share=spec.drift.sample, log_leave_out=spec.columns.sensitive)


def _read_training_end(run: JobRun) -> str:
    """Return the time at which the training ended; empty if it was not recorded."""
    try:
        return str(json.loads(run.store.get(run.job.run_file(layout.RESULT))).get("finished", ""))
    except (ObjectMissingError, ValueError):
        return ""


def _make_champion(run: JobRun, version: int, _: int | None) -> None:
    """Move MLflow's alias, once Triton serves the version."""
    from dmls_core.tracking.registry import promote

    promote(
        run.settings.mlflow_uri,
        run.job.model_name,
        run.result_of(TaskId.REGISTER)["model_version"],
        triton_version=version,
        deployed_by=f"Airflow run {run.context['run_id']}",
    )
    tag_decision(run)


def _report(run: JobRun, version: int) -> None:
    from dmls_core.serving.triton.placement import find_http_address

    evaluated, tracked = run.result_of(TaskId.EVALUATE), run.result_of(TaskId.REGISTER)
    name = run.job.model_name
    address = find_http_address(run.settings.triton_http, run.settings.triton_grpc, name)
    triton = parse_address(address, "http")
    run.reporter.links |= {
        "mlflow": tracked["url"],
        "report": tracked["report"],
        "model": f"{triton.url}/v2/models/{name}",
    }
    message = (
        f"deployed as {name} version {version}: {evaluated['metric']} {evaluated['score']:.4f} on "
        "held-out rows"
    )
    run.reporter.report("deployed", message)
    notify(run.job.owner, "deployed", f"{run.job.team}/{run.job.name}", message, run.reporter.links)
