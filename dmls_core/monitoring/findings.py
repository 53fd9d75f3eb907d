"""Publish the results of a monitor run for a job: status, MLflow tags, counters, notifications."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dmls_core.intake import add_note
from dmls_core.monitoring.drift import DriftResult, now
from dmls_core.monitoring.jobs import MonitoredJob
from dmls_core.monitoring.label_evaluation import LabelCheck
from dmls_core.monitoring.prometheus import count
from dmls_core.store import Store, layout

log = logging.getLogger(__name__)

DRIFT_TAG, DRIFT_CHECKED_TAG = "dmls.drift", "dmls.drift_checked"
DECAY_TAG, DECAY_CHECKED_TAG = "dmls.decay", "dmls.decay_checked"

TAG_LENGTH = 500

Event = Literal["drifted", "decayed", "rejected"]

Notify = Callable[[Mapping[str, Any], Event, str, str, Mapping[str, str]], None]
"""(``[owner]`` of the spec, event, ``<team>/<job>``, message, links) -> None; never raises."""


@dataclass(frozen=True, slots=True)
class DriftCheck:
    """A comparison whose results have been written.

    Attributes:
        source: ``requests``, or the display name of a partition.
        version: the champion's version in MLflow's registry.
        page: address of the drift page.
        retrain_run_id: id of the run to start; empty for none.
    """

    job: MonitoredJob
    source: str
    drift: DriftResult
    version: int
    page: str
    retrain_run_id: str


def publish(
    store: Store,
    mlflow_uri: str,
    job: MonitoredJob,
    checks: Sequence[DriftCheck],
    labels: LabelCheck | None,
    notify: Notify,
) -> None:
    """Publish the findings of one monitor run for a job, with one note in its status."""
    notes: list[str] = []
    links: dict[str, str] = {}
    if checks:
        message, links["drift"] = _publish_drift(store, mlflow_uri, job, checks, notify)
        notes.append(message)
    if labels is not None:
        notes += _publish_labels(store, mlflow_uri, job, labels, notify)
        links |= {"labels": labels.page} if labels.page else {}
    if notes:
        add_note(store, job.team, job.name, "; ".join(notes), links)


def _publish_drift(
    store: Store, mlflow_uri: str, job: MonitoredJob, checks: Sequence[DriftCheck], notify: Notify
) -> tuple[str, str]:
    """Publish the latest check with drift, or the latest check; return message and page."""
    from dmls_core.tracking.registry import tag_version

    shown = next((check for check in reversed(checks) if check.drift.drifted), checks[-1])
    count(store, job.team, job.name, "drift_checks", len(checks))
    drifted = sum(check.drift.verdict == "drifted" for check in checks)
    if drifted:
        count(store, job.team, job.name, "drifts", drifted)
    message = shown.drift.summary + ("" if shown.source == "requests" else f" ({shown.source})")
    tags = {DRIFT_TAG: message[:TAG_LENGTH], DRIFT_CHECKED_TAG: shown.drift.at}
    tag_version(mlflow_uri, layout.model_name(job.team, job.name), shown.version, tags)
    if drifted:
        notify(job.spec.get("owner") or {}, "drifted", str(job), message, {"drift": shown.page})
    return message, shown.page


def _publish_labels(
    store: Store, mlflow_uri: str, job: MonitoredJob, labels: LabelCheck, notify: Notify
) -> list[str]:
    """Publish the evaluations and the files that cannot be read; return messages for the status."""
    from dmls_core.tracking.registry import tag_version

    owner, headline = job.spec.get("owner") or {}, labels.headline
    if labels.page and headline is not None:
        log.info("%s: %s", job, labels.message)
        count(store, job.team, job.name, "decay_checks")
        for evaluation in labels.evaluations:
            if evaluation.decay.score is not None:
                tags = {DECAY_TAG: evaluation.summary[:TAG_LENGTH], DECAY_CHECKED_TAG: now()}
                tag_version(mlflow_uri, layout.model_name(job.team, job.name), evaluation.version, tags)
        if headline.decayed:
            count(store, job.team, job.name, "decays")
            notify(owner, "decayed", str(job), labels.message, {"labels": labels.page})
    notes = [labels.message] if labels.message else []
    if labels.unread:
        message = "cannot read label files: "
        notify(owner, "rejected", str(job), message + "; ".join(labels.unread), {})
        more = len(labels.unread) - 1
        notes.append(
            message
            + labels.unread[0]
            + (f" (and {more} more {'file' if more == 1 else 'files'})" if more else "")
        )
    return notes
