"""``approve``: a person, or the spec's rule, decides whether the candidate is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from dmls_core.airflow.links import LINKS
from dmls_core.airflow.status import report_failure
from dmls_core.airflow.task_id import TaskId
from dmls_core.airflow.tasks.base import JobRun, open_run
from dmls_core.airflow.tasks.decision import Decision, decide, mismatch, record

if TYPE_CHECKING:
    from dmls_core.tracking import Champion

NOT_DEPLOYED = "trained and registered as version {version} in MLflow, not deployed: {reason}"


class ApproveOperator(ApprovalOperator):
    """Airflow's own approval, asked only where the spec says ``[deploy] mode = "manual"``.

    ``auto`` passes by itself where the rule of ``dmls_core.evaluate.comparison`` holds; ``never`` skips the
    deployment. A score under ``[deploy] min_metric`` is never deployed. Where nobody answers until
    ``[deploy] approval_timeout``, the champion stays.
    """

    template_fields = ()
    operator_extra_links = LINKS

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Deploy this model?", on_failure_callback=report_failure, **kwargs)

    def execute(self, context: Context) -> Any:
        """Decide, or ask and wait without holding a worker slot."""
        from dmls_core.tracking import champion_of

        run = open_run(context)
        evaluated, tracked = run.result_of(TaskId.EVALUATE), run.result_of(TaskId.REGISTER)
        run.reporter.links |= {"mlflow": tracked["url"], "report": tracked["report"]}
        champion = champion_of(run.settings.mlflow_uri, run.job.model_name)
        gist = f"{evaluated['metric']} {evaluated['score']:.4f} on the holdout"
        decision = decide(run, evaluated, champion)
        if decision is None:
            return self._ask(run, evaluated, champion, gist)
        record(run, decision)
        if not decision.deploy:
            self._decline(run, f"{decision.reason} ({gist})")
            return None
        self.log.info("Deployed by %s: %s (%s)", decision.by, decision.reason, gist)
        return {"approved": True, "by": decision.by, "reason": decision.reason}

    def _ask(self, run: JobRun, evaluated: Mapping[str, Any], champion: Champion | None, gist: str) -> Any:
        """Put both models' numbers on the page, and wait for a person."""
        tracked, timeout = run.result_of(TaskId.REGISTER), run.job.spec.deploy.approval_timeout
        self.subject = f"Deploy {run.job.model_name} version {tracked['model_version']}?"
        told = side_by_side(run, evaluated, champion)
        self.body = f"{told}\n\n[The report]({tracked['report']}) · [The run in MLflow]({tracked['url']})"
        deadline = ""
        if timeout:
            self.response_timeout, self.defaults = timedelta(seconds=timeout), [self.REJECT]
            deadline = f" Without an answer within {timeout:g} s the champion stays."
            self.body += f"\n\n{deadline.strip()}"
        versus = _in_short(run, evaluated, champion)
        run.reporter.report(
            "awaiting approval", f"{gist}; {versus}. Approve or reject it in Airflow.{deadline}"
        )
        return super().execute(run.context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a person's answer or the deadline; what follows is skipped if it was a rejection."""
        run = open_run(context)
        rejected = self.REJECT in event.get("chosen_options", ())
        if "error" not in event:
            found = run.result_of(TaskId.EVALUATE).get("comparison") or {}
            late = bool(event.get("timedout"))
            who = (event.get("responded_by_user") or {}).get("name") or "a user"
            reason = (
                "nobody answered the approval by its deadline; the champion stays"
                if late
                else "the approval was declined in Airflow; the champion stays"
                if rejected
                else f"approved in Airflow by {who}"
            )
            decision = Decision(
                not rejected, "deadline" if late else "person", reason, found.get("champion_version")
            )
            record(run, decision)
            if rejected:
                version = run.result_of(TaskId.REGISTER)["model_version"]
                # Before the base class, which ends the task by skipping what follows.
                run.reporter.report("accepted", NOT_DEPLOYED.format(version=version, reason=reason))
        return super().execute_complete(context, event)

    def _decline(self, run: JobRun, reason: str) -> None:
        """Say why nothing is deployed, and end the task by skipping what follows."""
        version = run.result_of(TaskId.REGISTER)["model_version"]
        run.reporter.report("accepted", NOT_DEPLOYED.format(version=version, reason=reason))
        self.log.info("Not deployed: %s", reason)
        self.skip(ti=run.context["ti"], tasks=run.context["task"].get_direct_relatives(upstream=False))


def side_by_side(run: JobRun, evaluated: Mapping[str, Any], champion: Champion | None) -> str:
    """Return both models' numbers in Markdown, for the page that asks."""
    metric, score = evaluated["metric"], evaluated["score"]
    if champion is None:
        return f"The candidate has {metric} {score:.4f} on its holdout. There is no champion yet."
    if issue := mismatch(run, evaluated["comparison"], champion):
        return (
            f"The candidate has {metric} {score:.4f} on its holdout. The champion is version "
            f"{champion.version}: {issue}."
        )
    found = evaluated["comparison"]
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


def _in_short(run: JobRun, evaluated: Mapping[str, Any], champion: Champion | None) -> str:
    if champion is None:
        return "there is no champion yet"
    if issue := mismatch(run, evaluated["comparison"], champion):
        return f"the champion is version {champion.version}: {issue}"
    found = evaluated["comparison"]
    return (
        f"on {found['rows']:,} common rows {found['challenger_score']:.4f}, and the champion (version "
        f"{champion.version}) {found['champion_score']:.4f}: {found['reason']}"
    )
