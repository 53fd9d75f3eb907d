"""Compare what is new of a job's logged requests with what its champion was trained on."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dmls_core.errors import DmlsError
from dmls_core.intake import add_note
from dmls_core.monitoring import Drift, check_files, drift_page, fetch_model, metrics_text
from dmls_core.monitoring.requests import Seen, download_newest, list_requests, new_requests, read_seen
from dmls_core.store import ObjectInfo, Registry, Store, layout

log = logging.getLogger(__name__)

MOST_RETRAINS = 500
"""Runs started at a time, below Airflow's default for mapped tasks; other jobs wait for the next look."""

LATEST = "latest/"
"""Folder of the latest comparison's files, beside those of each comparison."""

DRIFT_TAG = "dmls.drift"
CHECKED_TAG = "dmls.drift_checked"


@dataclass(frozen=True, slots=True)
class Watched:
    """A job whose spec asks for drift to be watched.

    Attributes:
        team: of the job.
        name: of the job.
        drift: the spec's ``[drift]``.
    """

    team: str
    name: str
    drift: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checked:
    """A comparison that was made and written down.

    Attributes:
        job: what was compared.
        drift: what was found.
        seen: up to where the job's requests are compared now.
        retrain_run_id: of the run that is to be started; empty: none.
    """

    job: Watched
    drift: Drift
    seen: Seen
    retrain_run_id: str


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at all jobs found.

    Attributes:
        checked: the jobs that had something new.
        failed: why others could not be compared, a line each.
    """

    checked: list[Checked]
    failed: list[str]


def check_jobs(store: Store, mlflow_uri: str) -> Look:
    """Compare every watched job's new requests; a job that cannot be compared hides no other.

    Raises:
        StoreError: the jobs cannot be listed.
    """
    logged = list_requests(store)
    look = Look([], [])
    for job in watched_jobs(store):
        if sum(bool(checked.retrain_run_id) for checked in look.checked) >= MOST_RETRAINS:
            break
        try:
            checked = check_job(store, mlflow_uri, job, logged.get((job.team, job.name), []))
        except Exception as error:
            log.exception("%s/%s cannot be compared", job.team, job.name)
            reason = str(error) if isinstance(error, DmlsError) else repr(error)
            look.failed.append(f"{job.team}/{job.name}: {reason}")
            continue
        if checked:
            log.info("%s/%s: %s", job.team, job.name, checked.drift.gist)
            look.checked.append(checked)
    return look


def watched_jobs(store: Store) -> list[Watched]:
    """Return the active jobs with ``[drift]`` in their specs."""
    registry = Registry(store)
    found = []
    for record in registry.jobs():
        if record.state == "active":
            table = registry.spec(record.spec_sha256).get("drift")
            if table is not None:
                found.append(Watched(record.team, record.name, table))
    return found


def check_job(store: Store, mlflow_uri: str, job: Watched, files: Sequence[ObjectInfo]) -> Checked | None:
    """Compare a job's new requests, write page, JSON and metrics, tag the model, and tell the user.

    Called again for the same files, it writes the same under the same names.

    Returns:
        None where nothing is new, or too little to judge: that waits for more.

    Raises:
        DmlsError: there is no champion, its baseline is missing, or a file cannot be read.
    """
    from dmls_core.serving import checkpoint
    from dmls_core.tracking import find_champion, tag_version

    seen = read_seen(store, job.team, job.name)
    new = new_requests(files, seen)
    if not new:
        return None
    model_name = layout.model_name(job.team, job.name)
    champion = find_champion(mlflow_uri, model_name)
    with TemporaryDirectory(prefix="dmls-monitor-") as scratch:
        model = fetch_model(store, job.team, job.name, champion.run_key, Path(scratch))
        drift = check_files(
            model,
            download_newest(store, new, Path(scratch)),
            float(job.drift["threshold"]),
            lambda path, rows: checkpoint.predict(checkpoint.load(path), rows),
        )
    if drift.verdict == "too few rows":
        return None
    seen = seen.advance(new)
    page = _write(store, job, drift, seen, champion.run_key)
    tag_version(
        mlflow_uri,
        model_name,
        champion.version,
        {DRIFT_TAG: drift.gist[:500], CHECKED_TAG: drift.at},
    )
    add_note(store, job.team, job.name, drift.gist, {"drift": page})
    retrain = drift.verdict == "drifted" and job.drift["action"] == "retrain"
    # One run a day for each champion: drift is found again at every look until the champion has changed.
    run_id = f"drift__{champion.run_key}__{drift.at[:10]}" if retrain else ""
    return Checked(job, drift, seen, run_id)


def _write(store: Store, job: Watched, drift: Drift, seen: Seen, run_key: str) -> str:
    """Write the files of a comparison; return the page's address."""
    document = drift.as_json(team=job.team, job=job.name, run_key=run_key)
    files = {
        "drift.html": drift_page(drift, f"{job.team}/{job.name}").encode(errors="replace"),
        "drift.prom": metrics_text(drift, job.team, job.name).encode(),
        "drift.json": json.dumps(document, indent=1, allow_nan=False).encode(),
    }
    folder = layout.monitor_folder(job.team, job.name)
    for place in (f"{seen.name}/", LATEST):
        for name, content in files.items():
            store.put(f"{folder}{place}{name}", content)
    return f"{store.url}/{folder}{seen.name}/drift.html"
