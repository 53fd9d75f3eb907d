"""The task ``approve``: decide whether the model is deployed, or ask for an approval."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from dmls_core.airflow.jobs.tasks.base import JobRun, open_run
from dmls_core.airflow.jobs.tasks.records import record_decision
from dmls_core.airflow.links import LINKS
from dmls_core.airflow.runs.status import report_failure
from dmls_core.airflow.task_id import TaskId
from dmls_core.html.formats import counted, sentence
from dmls_core.intake.status import NOT_DEPLOYED, escape
from dmls_core.store import Registry

if TYPE_CHECKING:
    from dmls_core.tracking.decision import Candidate, DecidedBy
    from dmls_core.tracking.registry import RegisteredVersion


_RETIRED = "the job was retired"


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
            decision = Decision(False, "retirement", _RETIRED, champion.version if champion else None)
        approvers = run.settings.approvers.get(run.job.team, [])
        if decision and decision.deploy and approvers:
            decision = None
        if decision is None:
            self.assigned_users = [{"id": name, "name": name} for name in approvers] or None
            return self._request(run, evaluated, candidate, champion)
        record_decision(run, decision)
        if not decision.deploy:
            reason = f"{decision.reason} ({score})"
            run.reporter.report("trained", _not_deployed(run, reason))
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
        table = comparison_table(evaluated, candidate, champion) + _warnings(evaluated)
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
        """Continue after a person's answer or the deadline; a rejection skips the tasks that follow.

        Once the job is retired, an approval is a rejection, too.
        """
        from dmls_core.tracking.decision import Decision

        run = open_run(context)
        if "error" not in event:
            comparison = run.result_of(TaskId.EVALUATE).get("comparison") or {}
            rejected = self.REJECT in event["chosen_options"]
            late = bool(event.get("timedout"))
            retired = (late or not rejected) and _is_retired(run)
            if retired:
                rejected, event = True, event | {"chosen_options": [self.REJECT]}
            by: DecidedBy = "deadline" if late else "person"
            user = (event.get("responded_by_user") or {}).get("name") or "a user"
            version = comparison.get("champion_version")
            if retired:
                by, reason = "retirement", _RETIRED
            elif late:
                reason = "the approval was not answered by its deadline; the champion stays"
            elif rejected:
                reason = f"declined by {user}" + ("; the champion stays" if version else "")
            else:
                reason = f"approved in Airflow by {user}"
            record_decision(run, Decision(not rejected, by, reason, version))
            if rejected:
                # Before the base class, which ends the task by skipping what follows.
                run.reporter.report("trained", _not_deployed(run, reason))
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
    compared = candidate.comparison or {}
    rows = [
        f"| | {metric} |",
        "| --- | --- |",
        f"| champion, version {champion.version} | {compared['champion_score']:.4f} |",
        f"| **candidate** | **{compared['challenger_score']:.4f}** |",
    ]
    if compared.get("conclusive", True):  # a run of an earlier release has no such key
        low, high = compared["interval"]
        rows += [
            f"| improvement | {compared['difference']:+.4f} |",
            f"| 95 % interval | {low:+.4f} to {high:+.4f} |",
            f"| probability of more than {compared['min_improvement']:g} | {compared['probability']:.1%} |",
        ]
    rows += [f"| rows | {compared['rows']:,} |"]
    return "\n".join(rows) + f"\n\n{sentence(compared['reason'])}."


def _warnings(evaluated: Mapping[str, Any]) -> str:
    """Return the warnings of the result's page in Markdown, below a table."""
    warnings = evaluated.get("warnings", ())  # a run of an earlier release has none here
    if not warnings:
        return ""
    listed = "\n".join(f"- {escape(warning)}" for warning in warnings)
    return f"\n\n**{counted(len(warnings), 'warning')} about this score:**\n\n{listed}"


def _summary(candidate: Candidate, champion: RegisteredVersion | None) -> str:
    from dmls_core.tracking.decision import incomparable

    if champion is None:
        return "there is no champion yet"
    reason = incomparable(candidate, champion) or (candidate.comparison or {})["reason"]
    return f"the champion is version {champion.version}: {reason}"


def _not_deployed(run: JobRun, reason: str) -> str:
    return NOT_DEPLOYED.format(version=run.result_of(TaskId.REGISTER)["model_version"], reason=reason)
