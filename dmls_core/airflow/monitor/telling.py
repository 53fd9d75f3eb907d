"""Tell users what a look of the monitor found: beside the drop, in MLflow, by counters and messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dmls_core.airflow.monitor.late_labels import LabelLook
from dmls_core.airflow.monitor.look import Checked, Watched
from dmls_core.airflow.notifications import notify
from dmls_core.intake import add_note
from dmls_core.monitoring.counters import count
from dmls_core.monitoring.drift import now
from dmls_core.store import Store, layout

log = logging.getLogger(__name__)

DRIFT_TAG = "dmls.drift"
CHECKED_TAG = "dmls.drift_checked"
DECAY_TAG = "dmls.decay"
LABELS_TAG = "dmls.decay_checked"


def tell(
    store: Store, mlflow_uri: str, job: Watched, found: Sequence[Checked], labels: LabelLook | None
) -> None:
    """Tag the versions and tell the user what one look found of a job, in one note."""
    notes: list[str] = []
    links: dict[str, str] = {}
    if found:
        told = _tell_drift(store, mlflow_uri, job, found)
        notes.append(told[0])
        links["drift"] = told[1]
    if labels is not None:
        notes += _tell_labels(store, mlflow_uri, job, labels)
        links |= {"labels": labels.page} if labels.page else {}
    if notes:
        add_note(store, job.team, job.name, "; ".join(notes), links)


def _tell_drift(store: Store, mlflow_uri: str, job: Watched, found: Sequence[Checked]) -> tuple[str, str]:
    """Tell of the latest drift, if there is any; return a sentence and the address of a page."""
    from dmls_core.tracking import tag_version

    told = next((checked for checked in reversed(found) if checked.drift.drifted), found[-1])
    count(store, job.team, job.name, "drift_checks", len(found))
    if drifts := sum(checked.drift.verdict == "drifted" for checked in found):
        count(store, job.team, job.name, "drifts", drifts)
    gist = told.drift.summary + ("" if told.source == "requests" else f" ({told.source})")
    tags = {DRIFT_TAG: gist[:500], CHECKED_TAG: told.drift.at}
    tag_version(mlflow_uri, layout.model_name(job.team, job.name), told.version, tags)
    if drifts:
        owner = job.spec.get("owner") or {}
        notify(owner, "drifted", f"{job.team}/{job.name}", gist, {"drift": told.page})
    return gist, told.page


def _tell_labels(store: Store, mlflow_uri: str, job: Watched, labels: LabelLook) -> list[str]:
    """Tell what labels showed, and which files of them cannot be read; return sentences."""
    from dmls_core.tracking import tag_version

    owner, name = job.spec.get("owner") or {}, f"{job.team}/{job.name}"
    told = labels.told
    if labels.page and told is not None:
        log.info("%s: %s", name, labels.message)
        count(store, job.team, job.name, "decay_checks")
        for one in labels.judged:
            if one.decay.score is not None:
                tags = {DECAY_TAG: one.decay.summary(one.version)[:500], LABELS_TAG: now()}
                tag_version(mlflow_uri, layout.model_name(job.team, job.name), one.version, tags)
        if told.decay.verdict == "decayed":
            count(store, job.team, job.name, "decays")
            notify(owner, "decayed", name, labels.message, {"labels": labels.page})
    if labels.unread:
        notify(owner, "rejected", name, "labels were not read: " + "; ".join(labels.unread))
    unread = [f"labels were not read: {labels.unread[0]}"] if labels.unread else []
    more = len(labels.unread) - 1
    if more > 0:
        unread[0] += f" (and {more} more {'file' if more == 1 else 'files'})"
    return [*([labels.message] if labels.message else []), *unread]
