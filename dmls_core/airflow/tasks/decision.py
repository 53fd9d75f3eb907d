"""Whether a candidate takes the champion's place: the rule, and the record of what was decided."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from dmls_core.airflow.task_id import TaskId
from dmls_core.airflow.tasks.base import JobRun
from dmls_core.errors import TrackingError
from dmls_core.store import layout

if TYPE_CHECKING:
    from dmls_core.tracking import Champion

log = logging.getLogger(__name__)

By = Literal["rule", "request", "person", "deadline"]

DECISION_TAG, REASON_TAG = "dmls.decision", "dmls.decision_reason"


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a candidate.

    Attributes:
        deploy: whether it takes the champion's place.
        by: the spec's rule, a user's request at the run's start, a person in Airflow, or the deadline.
        reason: why, in words.
        champion_version: whom it was measured against; ``None``: there is no champion.
    """

    deploy: bool
    by: By
    reason: str
    champion_version: int | None = None

    @property
    def word(self) -> str:
        """The outcome in a word."""
        return "deploy" if self.deploy else "keep"


def decide(run: JobRun, evaluated: Mapping[str, Any], champion: Champion | None) -> Decision | None:
    """Apply the spec's rules to a candidate.

    Args:
        run: the run.
        evaluated: what the task ``evaluate`` returned.
        champion: the present one.

    Returns:
        ``None`` where a person is to decide.
    """
    deploy, version = run.job.spec.deploy, champion.version if champion else None

    def keep(reason: str) -> Decision:
        return Decision(deploy=False, by="rule", reason=reason, champion_version=version)

    if deploy.mode == "never":
        return keep('[deploy] mode is "never"')
    if not evaluated["good_enough"]:
        return keep(f"the score misses [deploy] min_metric {deploy.min_metric}")
    if not run.job.deploy and (objection := _too_old(run, champion)):
        return keep(objection)
    if deploy.mode == "manual":
        return None
    if run.job.deploy:
        return Decision(
            deploy=True, by="request", reason="asked for by who started the run", champion_version=version
        )
    if champion is None:
        return Decision(deploy=True, by="rule", reason="there is no champion yet")
    if objection := mismatch(run, evaluated["comparison"], champion):
        return keep(objection)
    found = evaluated["comparison"]
    return Decision(found["better"], "rule", found["reason"], version)


def mismatch(run: JobRun, comparison: Mapping[str, Any] | None, champion: Champion) -> str:
    """Return why a comparison says nothing about the present champion; empty if it does."""
    if champion.run_key == run.job.run_key:
        return "it is the champion already"
    if comparison is None:
        return "it was not compared with the champion: there was none when its training began"
    if comparison["champion_version"] != champion.version:
        return (
            f"it was compared with version {comparison['champion_version']}, and the champion is version "
            f"{champion.version} now"
        )
    return "" if comparison["comparable"] else str(comparison["reason"])


def _too_old(run: JobRun, champion: Champion | None) -> str:
    """Return why a candidate may not take the place of a champion of a later time; empty if it may."""
    if run.job.interval is None:
        return ""
    if run.job.backfill:
        return 'it was made by a backfill; run it again with {"run": {"deploy": true}} to have it deployed'
    latest = champion.until if champion else ""
    # Both in UTC and of one form: they compare as texts.
    return f"the champion was trained on later data, until {latest}" if latest > run.job.interval[1] else ""


def record(run: JobRun, decision: Decision) -> None:
    """Write a decision into the run's folder, and onto the model's version in MLflow if nothing is deployed.

    A deployment is written there when it has succeeded, by ``tag_decision``.
    """
    version = run.result_of(TaskId.REGISTER)["model_version"]
    document = {
        "schema": 1,
        "decision": decision.word,
        **asdict(decision),
        "model_version": version,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    run.store.put(run.job.run_file(layout.DECISION), json.dumps(document, indent=1).encode())
    if not decision.deploy:
        tag_decision(run)


def tag_decision(run: JobRun) -> None:
    """Write the decision in the run's folder onto the model's version in MLflow.

    MLflow may be away: what was decided holds all the same.
    """
    from dmls_core.tracking import tag_version

    found = json.loads(run.store.get(run.job.run_file(layout.DECISION)))
    tags = {DECISION_TAG: found["decision"], REASON_TAG: f"{found['by']}: {found['reason']}"[:5000]}
    try:
        tag_version(run.settings.mlflow_uri, run.job.model_name, found["model_version"], tags)
    except TrackingError as error:
        log.warning("the decision is not in MLflow: %s", error)
