"""Compare what is new of a job, requests, partitions and labels, with what its champion was trained on."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dmls_core.airflow.monitor import arrivals
from dmls_core.airflow.monitor.apart import MEMORY, EndedError, Reader
from dmls_core.airflow.monitor.label_files import state_key
from dmls_core.airflow.monitor.late_labels import LabelLook, look_at_labels
from dmls_core.airflow.monitor.look import Checked, Look, Watched
from dmls_core.airflow.monitor.telling import tell
from dmls_core.errors import DmlsError, NotFoundError
from dmls_core.monitoring import (
    Drift,
    drift_metrics,
    drift_page,
    fetch_baseline,
    inference_log,
)
from dmls_core.monitoring.drift import now
from dmls_core.monitoring.prometheus import drift_file
from dmls_core.store import ObjectInfo, Registry, Store, layout

log = logging.getLogger(__name__)

MOST_RETRAINS = 500
"""Runs started at a time, below Airflow's default for mapped tasks; other jobs wait for the next look."""


def check_jobs(store: Store, mlflow_uri: str, memory: int = MEMORY) -> Look:
    """Compare what is new of every watched job; a job that cannot be compared hides no other.

    Args:
        store: of the platform.
        mlflow_uri: the MLflow server.
        memory: bytes that a trainer may take, and so may reading a job's files.

    Raises:
        StoreError: the jobs cannot be listed.
    """
    logged = inference_log.list_requests(store)
    look = Look()
    with closing(Reader(memory)) as reader:
        for job in watched_jobs(store):
            if len(look.retrains) >= MOST_RETRAINS:
                break
            files = logged.get((job.team, job.name), [])
            found: list[Checked] = []
            labels: LabelLook | None = None
            with _noting(look, job, "compared"):
                for checked in _check_job(store, reader, mlflow_uri, job, files, look):
                    log.info("%s/%s, %s: %s", job.team, job.name, checked.source, checked.drift.summary)
                    found.append(checked)
            with _noting(look, job, "judged by its labels"):
                labels = look_at_labels(store, reader, mlflow_uri, job.team, job.name, job.spec, files)
            look.checked.extend(found)
            _note(look, job, found, labels)
            tell(store, mlflow_uri, job, found, labels)
    return look


@contextmanager
def _noting(look: Look, job: Watched, what: str) -> Iterator[None]:
    """Note what goes wrong with one job, which hides no other."""
    try:
        yield
    except Exception as error:
        log.exception("%s/%s cannot be %s", job.team, job.name, what)
        reason = str(error) if isinstance(error, DmlsError) else repr(error)
        look.failed.append(f"{job.team}/{job.name}: {reason}")


def _note(look: Look, job: Watched, found: Sequence[Checked], labels: LabelLook | None) -> None:
    """Note the runs that a job asks for, and up to where its labels were read."""
    runs = {checked.retrain_run_id for checked in found if checked.retrain_run_id}
    if labels is not None:
        look.judged += bool(labels.page)
        look.states[state_key(job.team, job.name)] = labels.state.as_json()
        if labels.failed:
            look.failed.append(f"{job.team}/{job.name}: {labels.failed}")
        if labels.decayed_champion and job.spec["drift"]["action"] == "retrain":
            runs.add(_run_id(labels.decayed_champion, now()))
    look.retrains.update((layout.dag_id(job.team, job.name), run_id) for run_id in runs)


def watched_jobs(store: Store) -> list[Watched]:
    """Return the active jobs with ``[drift]`` in their specs."""
    registry = Registry(store)
    found = []
    for record in registry.jobs():
        if record.state == "active":
            spec = registry.spec(record.spec_sha256)
            if spec.get("drift") is not None:
                found.append(Watched(record.team, record.name, spec))
    return found


def _check_job(
    store: Store, reader: Reader, mlflow_uri: str, job: Watched, logged: Sequence[ObjectInfo], look: Look
) -> Iterator[Checked]:
    """Compare a job's new partitions and requests; write page, JSON and metrics of each.

    Called again for the same files, it writes the same under the same names.

    Raises:
        DmlsError: requests have no champion, its baseline is missing, or a file cannot be read.
    """
    yield from _check_partitions(store, reader, mlflow_uri, job, look)
    yield from _check_requests(store, reader, mlflow_uri, job, logged, look)


def _check_requests(
    store: Store, reader: Reader, mlflow_uri: str, job: Watched, files: Sequence[ObjectInfo], look: Look
) -> Iterator[Checked]:
    """Compare new requests, if they are enough to judge: too few wait for more.

    Those that end their reader are noted as compared: they would end it at every look.
    """
    from dmls_core.tracking import find_champion

    seen = inference_log.read_cursor(store, job.team, job.name)
    new = inference_log.new_requests(files, seen)
    if not new:
        return
    champion = find_champion(mlflow_uri, layout.model_name(job.team, job.name))
    with TemporaryDirectory(prefix="dmls-monitor-") as scratch:
        paths = inference_log.download_newest(store, new, Path(scratch))
        seen, state = seen.advance(new), layout.monitor_folder(job.team, job.name) + inference_log.STATE_FILE
        try:
            drift = _compare(store, reader, job, champion.run_key, paths, "requests")
        except EndedError:
            look.states[state] = seen.as_json()
            raise
    if drift.verdict == "too few rows":
        return
    page = _write(store, job, drift, seen.name, champion.run_key, "requests")
    look.states[state] = seen.as_json()
    run_id = _retrain_run_id(job, drift, champion.run_key)
    yield Checked(job, "requests", drift, champion.version, page, run_id)


def _check_partitions(
    store: Store, reader: Reader, mlflow_uri: str, job: Watched, look: Look
) -> Iterator[Checked]:
    """Compare new partitions one by one; too few rows are put together with the next ones.

    A partition that the champion was trained on is compared with the champion before it, where that is
    known: its drift is told, though nothing is left to be done. One that ends its reader is noted as
    compared: it would end it at every look.
    """
    from dmls_core.tracking import find_champion

    before = arrivals.read_compared(store, job.team, job.name)
    new = arrivals.list_arrivals(store, job.team, job.name, job.spec, before.until)[: arrivals.MOST]
    if not new:
        return
    try:
        champion = find_champion(mlflow_uri, layout.model_name(job.team, job.name))
    except NotFoundError:
        return  # there is nothing to compare with yet
    state = layout.monitor_folder(job.team, job.name) + arrivals.STATE
    rest: arrivals.Arrival | None = None
    for arrival in new:
        covered = arrival.end <= champion.until
        baseline = before.run_key if covered else champion.run_key
        if not baseline:
            continue
        rest = rest.joined(arrival) if rest else arrival
        with TemporaryDirectory(prefix="dmls-monitor-") as scratch:
            paths = rest.download(store, Path(scratch), job.spec["data"]["format"])
            source = arrivals.source_name(job.team, job.name, rest.files)
            try:
                drift = _compare(store, reader, job, baseline, paths, source)
            except EndedError:
                look.states[state] = arrivals.Compared(arrival.end, baseline).as_json()
                raise
        if drift.verdict == "too few rows":
            continue
        page = _write(store, job, drift, rest.name, baseline, source)
        run_id = "" if covered else _retrain_run_id(job, drift, champion.run_key)
        look.states[state] = arrivals.Compared(arrival.end, champion.run_key).as_json()
        rest = None
        yield Checked(job, source, drift, champion.version, page, run_id)
    done = look.states.get(state, {}).get("until", before.until)
    look.states[state] = arrivals.Compared(max(done, champion.until), champion.run_key).as_json()


def _compare(
    store: Store, reader: Reader, job: Watched, run_key: str, paths: Sequence[Path], source: str
) -> Drift:
    """Compare files with what a run's model was trained on, which is copied beside them."""
    model = fetch_baseline(store, job.team, job.name, run_key, paths[0].parent)
    found = reader.ask(
        "drift",
        job.spec,
        source,
        model=str(model),
        files=list(map(str, paths)),
        threshold=float(job.spec["drift"]["threshold"]),
    )
    return Drift.from_fields(found)


def _retrain_run_id(job: Watched, drift: Drift, run_key: str) -> str:
    """Return the name of the run that drift starts, if the spec asks for one.

    There is one a day for each champion: drift is found again at every look until the champion has changed.
    """
    retrain = drift.verdict == "drifted" and job.spec["drift"]["action"] == "retrain"
    return _run_id(run_key, drift.at) if retrain else ""


def _run_id(run_key: str, at: str) -> str:
    """Return the name of the run that drift or decay of a champion starts: one a day, whichever it was."""
    return f"drift__{run_key}__{at[:10]}"


def _write(store: Store, job: Watched, drift: Drift, name: str, run_key: str, source: str) -> str:
    """Write the files of a comparison; return the page's address."""
    document = drift.as_json(team=job.team, job=job.name, run_key=run_key, source=source)
    kind = "requests" if source == "requests" else "data"
    files = {
        "drift.html": drift_page(drift, f"{job.team}/{job.name}: {source}").encode(errors="replace"),
        "drift.prom": drift_metrics(drift, job.team, job.name, kind).encode(),
        "drift.json": json.dumps(document, indent=1, allow_nan=False).encode(),
    }
    folder = layout.monitor_folder(job.team, job.name)
    for place in (f"{name}/", layout.DRIFT_FOLDERS[kind]):
        for file, content in files.items():
            store.put(f"{folder}{place}{file}", content)
    store.put(drift_file(job.team, job.name, kind), files["drift.prom"])
    return f"{store.url}/{folder}{name}/drift.html"
