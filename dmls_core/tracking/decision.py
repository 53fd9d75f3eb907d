"""Decide whether a candidate becomes the champion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dmls_core.spec import Deploy
    from dmls_core.tracking.registry import RegisteredVersion

DecidedBy = Literal["rule", "request", "person", "deadline", "retirement"]

DECISION_TAG, REASON_TAG = "dmls.decision", "dmls.decision_reason"


@dataclass(frozen=True, slots=True)
class Candidate:
    """The facts on which the decision about a candidate depends.

    Attributes:
        run_key: of the run that trained it.
        good_enough: whether its score reaches ``[deploy] min_metric``.
        comparison: with the champion of that time, as in ``result.json``; ``None``: there was none.
        until: end of the interval that it was trained on, ISO 8601 in UTC; ``None``: data without intervals.
        backfill: whether a backfill made it.
        requested: whether the user who started the run asked for its deployment.
    """

    run_key: str
    good_enough: bool
    comparison: Mapping[str, Any] | None
    until: str | None = None
    backfill: bool = False
    requested: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for a candidate.

    Attributes:
        deploy: whether it becomes the champion.
        by: the spec's rule, a user's request at the run's start, a person in Airflow, the deadline, or the
            retirement of the job.
        reason: for users.
        champion_version: the champion of that time; ``None``: there was none.
    """

    deploy: bool
    by: DecidedBy
    reason: str
    champion_version: int | None = None

    @property
    def word(self) -> str:
        """``deploy`` or ``keep``."""
        return "deploy" if self.deploy else "keep"

    def as_json(self, model_version: int) -> dict[str, Any]:
        """Return the content of ``decision.json``, dated now."""
        return {
            "schema": 1,
            "decision": self.word,
            **asdict(self),
            "model_version": model_version,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def decide(rule: Deploy, candidate: Candidate, champion: RegisteredVersion | None) -> Decision | None:
    """Apply the ``[deploy]`` table of a spec to a candidate; ``None``: a person has to decide."""
    version = champion.version if champion else None

    def keep(reason: str) -> Decision:
        return Decision(deploy=False, by="rule", reason=reason, champion_version=version)

    if rule.mode == "never":
        return keep('[deploy] mode is "never"')
    if not candidate.good_enough:
        return keep(f"the score does not reach [deploy] min_metric {rule.min_metric}")
    if not candidate.requested and (objection := _outdated(candidate, champion)):
        return keep(objection)
    if rule.mode == "manual":
        return None
    if candidate.requested:
        return Decision(True, "request", "requested by the user who started the run", version)
    if champion is None:
        return Decision(deploy=True, by="rule", reason="there is no champion yet")
    if objection := incomparable(candidate, champion):
        return keep(objection)
    comparison = candidate.comparison or {}
    return Decision(comparison["better"], "rule", comparison["reason"], version)


def incomparable(candidate: Candidate, champion: RegisteredVersion) -> str:
    """Return why the candidate's comparison does not apply to the present champion; empty if it does."""
    comparison = candidate.comparison
    if champion.run_key == candidate.run_key:
        return "it is the champion already"
    if comparison is None:
        return "it was not compared with the champion: there was none when its training began"
    if comparison["champion_version"] != champion.version:
        return (
            f"it was compared with version {comparison['champion_version']}, but the champion is version "
            f"{champion.version} now"
        )
    return "" if comparison["comparable"] else str(comparison["reason"])


def _outdated(candidate: Candidate, champion: RegisteredVersion | None) -> str:
    """Return why a candidate may not replace a champion of a later interval; empty if it may."""
    if candidate.until is None:
        return ""
    if candidate.backfill:
        return 'it was made by a backfill; to deploy it, run it again with {"run": {"deploy": true}}'
    latest = champion.until if champion else ""
    # Both in UTC and of one form: they compare as texts.
    return f"the champion was trained on later data, until {latest}" if latest > candidate.until else ""
