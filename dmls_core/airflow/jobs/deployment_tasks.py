"""The tasks of a job's DAG that decide on the candidate and deploy it: approve, stage, promote.

Decisions and deployments are recorded in the run's folder, on the model card, and in MLflow.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from dmls_core.airflow.jobs.job import download_model
from dmls_core.airflow.jobs.job_tasks import JobRun, JobTask, open_run
from dmls_core.airflow.jobs.status import report_failure
from dmls_core.airflow.links import LINKS
from dmls_core.airflow.notifiers import notify
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import ObjectMissingError, ServingError, TrackingError
from dmls_core.serving.triton.addresses import parse_address
from dmls_core.store import Registry, layout, write_served

if TYPE_CHECKING:
    from dmls_core.serving import DeployedVersion, ScalingChoice, ServingOptions
    from dmls_core.spec import Spec
    from dmls_core.tracking.decision import Candidate, DecidedBy, Decision
    from dmls_core.tracking.registry import RegisteredVersion


NOT_DEPLOYED = "trained and registered as version {version} in MLflow, not deployed: {reason}"

RETIRED = "the job was retired"


class ApproveOperator(ApprovalOperator):
    """Airflow's own approval, requested only if the spec says ``[deploy] mode = "manual"``.

    ``dmls_core.tracking.decision.decide`` has the rule: ``auto`` decides alone, ``never`` deploys nothing. If
    the approval is not answered within ``[deploy] approval_timeout``, the champion stays.
    """

    template_fields = ()
    operator_extra_links = LINKS

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Deploy this model?", on_failure_callback=report_failure, **kwargs)

    def execute(self, context: Context) -> Any:
        """Decide, or request an approval and wait without holding a worker slot."""
        from dmls_core.tracking.decision import Decision, decide
        from dmls_core.tracking.registry import champion_of

        run = open_run(context)
        evaluated, tracked = run.result_of(TaskId.EVALUATE), run.result_of(TaskId.REGISTER)
        run.reporter.links |= {"mlflow": tracked["url"], "report": tracked["report"]}
        champion = champion_of(run.settings.mlflow_uri, run.job.model_name)
        candidate = candidate_of(run, evaluated)
        score = f"{evaluated['metric']} {evaluated['score']:.4f} on the holdout"
        decision = decide(run.job.spec.deploy, candidate, champion)
        if _is_retired(run) and (decision is None or decision.deploy):
            decision = Decision(False, "retirement", RETIRED, champion.version if champion else None)
        approvers = run.settings.approvers.get(run.job.team, [])
        if decision and decision.deploy and approvers:
            decision = None
        if decision is None:
            self.assigned_users = [{"id": name, "name": name} for name in approvers] or None
            return self._request(run, evaluated, candidate, champion)
        record_decision(run, decision)
        if not decision.deploy:
            reason = f"{decision.reason} ({score})"
            run.reporter.report("accepted", _not_deployed(run, reason))
            self.log.info("Not deployed: %s", reason)
            self.skip(ti=context["ti"], tasks=context["task"].get_direct_relatives(upstream=False))
            return None
        self.log.info("Deployed by %s: %s (%s)", decision.by, decision.reason, score)
        return {"approved": True, "by": decision.by, "reason": decision.reason}

    def _request(
        self,
        run: JobRun,
        evaluated: Mapping[str, Any],
        candidate: Candidate,
        champion: RegisteredVersion | None,
    ) -> Any:
        tracked, timeout = run.result_of(TaskId.REGISTER), run.job.spec.deploy.approval_timeout
        self.subject = f"Deploy {run.job.model_name} version {tracked['model_version']}?"
        table = comparison_table(evaluated, candidate, champion)
        self.body = f"{table}\n\n[The report]({tracked['report']}) · [The run in MLflow]({tracked['url']})"
        deadline = ""
        if timeout:
            self.response_timeout, self.defaults = timedelta(seconds=timeout), [self.REJECT]
            deadline = f" Without an answer within {timeout:g} s the champion stays."
            self.body += f"\n\n{deadline.strip()}"
        summary = (
            f"{evaluated['metric']} {evaluated['score']:.4f} on the holdout; {_summary(candidate, champion)}"
        )
        run.reporter.report(
            "awaiting approval", f"{summary}. Approve or decline it, on its page or in Airflow.{deadline}"
        )
        return super().execute(run.context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a person's answer or the deadline; a rejection skips the tasks that follow.

        Retiring the job brings the deadline forward: see ``metadata.withdraw_approvals``.
        """
        from dmls_core.tracking.decision import Decision

        run = open_run(context)
        rejected = self.REJECT in event.get("chosen_options", ())
        if "error" not in event:
            comparison = run.result_of(TaskId.EVALUATE).get("comparison") or {}
            late = bool(event.get("timedout"))
            by: DecidedBy = "deadline" if late else "person"
            user = (event.get("responded_by_user") or {}).get("name") or "a user"
            version = comparison.get("champion_version")
            if late and _is_retired(run):
                by, reason = "retirement", RETIRED
            elif late:
                reason = "the approval was not answered by its deadline; the champion stays"
            elif rejected:
                reason = f"declined by {user}" + ("; the champion stays" if version else "")
            else:
                reason = f"approved in Airflow by {user}"
            record_decision(run, Decision(not rejected, by, reason, version))
            if rejected:
                # Before the base class, which ends the task by skipping what follows.
                run.reporter.report("accepted", _not_deployed(run, reason))
        return super().execute_complete(context, event)


def _is_retired(run: JobRun) -> bool:
    record = Registry(run.store).job(run.job.team, run.job.name)
    return record is not None and record.state == "retired"


def candidate_of(run: JobRun, evaluated: Mapping[str, Any]) -> Candidate:
    """Return the candidate of the decision, from the result of the task ``evaluate``."""
    from dmls_core.tracking.decision import Candidate

    return Candidate(
        run_key=run.job.run_key,
        good_enough=evaluated["good_enough"],
        comparison=evaluated["comparison"],
        until=run.job.interval[1] if run.job.interval else None,
        backfill=run.job.backfill,
        requested=run.job.deploy,
    )


def comparison_table(
    evaluated: Mapping[str, Any], candidate: Candidate, champion: RegisteredVersion | None
) -> str:
    """Return both models' scores in Markdown, for the approval's page."""
    from dmls_core.tracking.decision import incomparable

    metric, score = evaluated["metric"], evaluated["score"]
    if champion is None:
        return f"The candidate has {metric} {score:.4f} on its holdout. There is no champion yet."
    if objection := incomparable(candidate, champion):
        return (
            f"The candidate has {metric} {score:.4f} on its holdout. The champion is version "
            f"{champion.version}: {objection}."
        )
    found = candidate.comparison or {}
    low, high = found["interval"]
    rows = [
        f"| | {metric} |",
        "| --- | --- |",
        f"| champion, version {champion.version} | {found['champion_score']:.4f} |",
        f"| **candidate** | **{found['challenger_score']:.4f}** |",
        f"| improvement | {found['difference']:+.4f} |",
        f"| 95 % interval | {low:+.4f} to {high:+.4f} |",
        f"| probability of more than {found['min_improvement']:g} | {found['probability']:.1%} |",
        f"| rows | {found['rows']:,} |",
    ]
    return "\n".join(rows) + f"\n\n{found['reason'][:1].upper()}{found['reason'][1:]}. {found['note']}"


def _summary(candidate: Candidate, champion: RegisteredVersion | None) -> str:
    from dmls_core.tracking.decision import incomparable

    if champion is None:
        return "there is no champion yet"
    if objection := incomparable(candidate, champion):
        return f"the champion is version {champion.version}: {objection}"
    found = candidate.comparison or {}
    return (
        f"on {found['rows']:,} common rows {found['challenger_score']:.4f}, and the champion (version "
        f"{champion.version}) {found['champion_score']:.4f}: {found['reason']}"
    )


def _not_deployed(run: JobRun, reason: str) -> str:
    return NOT_DEPLOYED.format(version=run.result_of(TaskId.REGISTER)["model_version"], reason=reason)


class StageOperator(JobTask):
    """Write the candidate into the Triton repository and load it; the served version does not change."""

    operator_extra_links = LINKS

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the candidate's version, and the verified one before it."""
        run.reporter.running("deploying")
        with tempfile.TemporaryDirectory(prefix="dmls-stage-") as scratch:
            folder = download_model(run.job, run.store, Path(scratch))
            with run.deployment() as deployment:
                staged = deployment.stage(folder)
        self.log.info("Triton loaded %s version %s as candidate", staged.model, staged.version)
        return {"version": staged.version, "previous": staged.previous}


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
                    options=serving_options(run.job.spec),
                    finish=partial(_make_champion, run),
                )
                about = deployment.repository.read(run.job.model_name, version, "model.json")
        except ServingError:
            count(run.store, run.job.team, run.job.name, "verification_failures")
            raise
        place = run.job.team, run.job.name
        by = f"Airflow run {run.context['run_id']}"
        write_served(run.store, *place, version, about, by=by, run=run.job.run_key, trained=_trained(run))
        count(run.store, *place, "deployments")
        record_deployment(run, served, choice)
        _report(run, version)
        proof = served.proof
        return {"version": version} | (
            {"rows": proof.rows, "milliseconds": proof.milliseconds} if proof else {}
        )


def serving_options(spec: Spec) -> ServingOptions:
    """Return the serving options of a spec: rows are logged if drift is monitored."""
    from dmls_core.serving import ServingOptions

    if spec.drift is None:
        return ServingOptions()
    return ServingOptions(log_share=spec.drift.sample, log_leave_out=spec.columns.sensitive)


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
        f"deployed as {name} version {version}: {evaluated['metric']} {evaluated['score']:.4f} on rows "
        "that the search never saw"
    )
    run.reporter.report("deployed", message)
    notify(run.job.owner, "deployed", f"{run.job.team}/{run.job.name}", message, run.reporter.links)


log = logging.getLogger(__name__)

SERVING_TAG = "dmls.serving"


def record_decision(run: JobRun, decision: Decision) -> None:
    """Write a decision into the run's folder, and into MLflow unless ``tag_decision`` does so later."""
    document = decision.as_json(run.result_of(TaskId.REGISTER)["model_version"])
    run.store.put(run.job.run_file(layout.DECISION), json.dumps(document, indent=1).encode())
    if not decision.deploy:
        tag_decision(run)


def tag_decision(run: JobRun) -> None:
    """Copy the decision from the run's folder to the model's version in MLflow, if MLflow answers."""
    from dmls_core.tracking.decision import DECISION_TAG, REASON_TAG

    found = json.loads(run.store.get(run.job.run_file(layout.DECISION)))
    _tag(run, {DECISION_TAG: found["decision"], REASON_TAG: f"{found['by']}: {found['reason']}"})


def _trained(run: JobRun) -> str:
    """Return the time at which the training ended, an empty text if it is not known."""
    key = layout.run_folder(run.job.team, run.job.name, run.job.run_key) + layout.RESULT
    try:
        return str(json.loads(run.store.get(key)).get("finished", ""))
    except (ObjectMissingError, ValueError):
        return ""


def record_deployment(run: JobRun, served: DeployedVersion, choice: ScalingChoice) -> None:
    """Write a deployment, unless an earlier try did; ``served`` has no proof if the task is repeated."""
    from dmls_core.serving.predict.card import CARD, card_of_deployed
    from dmls_core.serving.repository.options import describe_scaling

    record, card = run.job.run_file(layout.DEPLOYMENT), run.job.run_file(layout.DEPLOYED_CARD)
    if served.proof is None and run.store.head(card) is not None:
        return
    at = datetime.now(UTC).isoformat(timespec="seconds")
    by = f"Airflow run {run.context['run_id']}"
    document = {
        "schema": 1,
        "model": served.model,
        "version": served.version,
        "previous": served.previous,
        "golden_rows": served.proof.rows if served.proof else None,
        "milliseconds": served.proof.milliseconds if served.proof else None,
        "fil_backend": served.proof.backend if served.proof else None,
        "serving": choice.as_json(),
        "by": by,
        "at": at,
    }
    run.store.put(record, json.dumps(document, indent=1).encode())
    facts = {"Version in Triton": served.version, "Deployed": f"{at}, by {by}"}
    if served.proof:
        facts["One row takes"] = f"{served.proof.milliseconds:.2f} ms (median, over the slower protocol)"
        facts["Served by"] = served.proof.served_by
    facts["Served with"] = choice.text
    for found in choice.measured:
        rates = " to ".join(f"{rate:,.0f}" for rate in (min(found.rates), max(found.rates)))
        name = f"Measured with {describe_scaling(found.scaling)}"
        facts[f"{name}, again" if name in facts else name] = f"{rates} requests per second, 8 clients"
    _tag(run, {SERVING_TAG: choice.text})
    with suppress(ObjectMissingError):  # runs of earlier releases have no card
        page = run.store.get(run.job.run_file(f"{layout.MODEL}{CARD}")).decode()
        run.store.put(card, card_of_deployed(page, facts).encode())


def _tag(run: JobRun, tags: Mapping[str, str]) -> None:
    """Set tags on the model's version; go on if MLflow does not answer."""
    from dmls_core.tracking.registry import tag_version

    version = run.result_of(TaskId.REGISTER)["model_version"]
    short = {key: value[:5000] for key, value in tags.items()}
    try:
        tag_version(run.settings.mlflow_uri, run.job.model_name, version, short)
    except TrackingError as error:
        log.warning("MLflow does not have the tags %s of version %s: %s", ", ".join(tags), version, error)
