"""``approve``: a person, or the spec's rule, decides whether the candidate is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from dmls_core.orchestration.status import report_failure
from dmls_core.orchestration.tasks.base import JobRun, deployment_asked_for, open_run
from dmls_core.spec import Deploy

NOT_DEPLOYED = "trained and registered as version {version} in MLflow, not deployed: {reason}"


class ApproveOperator(ApprovalOperator):
    """Airflow's own approval, asked only where the spec says ``[deploy] mode = "manual"``.

    ``auto`` passes by itself when the candidate is better than the champion; ``never`` skips the
    deployment. A score under ``[deploy] min_metric`` is never deployed.
    """

    template_fields = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Deploy this model?", on_failure_callback=report_failure, **kwargs)

    def execute(self, context: Context) -> Any:
        """Decide, or ask and wait without holding a worker slot."""
        run = open_run(context)
        evaluated, tracked = run.result_of("evaluate"), run.result_of("register")
        run.reporter.links |= {"mlflow": tracked["url"], "report": tracked["report"]}
        champion = _champion_score(run, evaluated["metric"])
        gist = f"{evaluated['metric']} {evaluated['score']:.4f} on the holdout"
        gist += "; there is no champion yet" if champion is None else f"; the champion has {champion:.4f}"
        if objection := _too_old(run) or _objection(run.job.spec.deploy, evaluated, champion):
            self._decline(run, f"{objection} ({gist})")
            return None
        if run.job.spec.deploy.mode == "auto":
            self.log.info("Deployed by rule: %s", gist)
            return {"approved": True, "by": "rule"}
        self.subject = f"Deploy {run.job.model_name} version {tracked['model_version']}?"
        self.body = f"The candidate has {gist}.\n\n[The run in MLflow]({tracked['url']})"
        run.reporter.report("awaiting approval", f"{gist}. Approve or reject it in Airflow.")
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a person's answer; what follows is skipped if it was a rejection."""
        if self.REJECT in event.get("chosen_options", ()):
            run = open_run(context)
            version = run.result_of("register")["model_version"]
            reason = "the approval was declined in Airflow; the champion stays"
            # Before the base class, which ends the task by skipping what follows.
            run.reporter.report("accepted", NOT_DEPLOYED.format(version=version, reason=reason))
        return super().execute_complete(context, event)

    def _decline(self, run: JobRun, reason: str) -> None:
        """Say why nothing is deployed, and end the task by skipping what follows."""
        version = run.result_of("register")["model_version"]
        run.reporter.report("accepted", NOT_DEPLOYED.format(version=version, reason=reason))
        self.log.info("Not deployed: %s", reason)
        self.skip(ti=run.context["ti"], tasks=run.context["task"].get_direct_relatives(upstream=False))


def _champion_score(run: JobRun, metric: str) -> float | None:
    """Return the champion's holdout score by ``metric``, if there is a champion with one."""
    from dmls_core.tracking import champion_metric

    return champion_metric(run.settings.mlflow_uri, run.job.model_name, metric)


def _too_old(run: JobRun) -> str:
    """Return why the candidate may not take the place of a champion of a later time; empty if it may.

    A user may ask for the deployment all the same, with the run's configuration.
    """
    if run.job.inputs is None or deployment_asked_for(run):
        return ""
    if run.job.backfill:
        return 'it was made by a backfill; run it again with {"deploy": true} to have it deployed'
    from dmls_core.tracking import champion_tag
    from dmls_core.tracking.registry import INTERVAL_END_TAG

    latest = champion_tag(run.settings.mlflow_uri, run.job.model_name, INTERVAL_END_TAG) or ""
    end = run.job.inputs.interval[1]
    # Both in UTC and of one form: they compare as texts.
    return f"the champion was trained on later data, until {latest}" if latest > end else ""


def _objection(deploy: Deploy, evaluated: Mapping[str, Any], champion: float | None) -> str:
    """Return why the spec's rules forbid the deployment; empty if they don't."""
    if deploy.mode == "never":
        return '[deploy] mode is "never"'
    if not evaluated["good_enough"]:
        return f"the score misses [deploy] min_metric {deploy.min_metric}"
    if deploy.mode == "auto" and champion is not None:
        score: float = evaluated["score"]
        better = score > champion if evaluated["direction"] == "maximize" else score < champion
        return "" if better else "it is not better than the champion"
    return ""
