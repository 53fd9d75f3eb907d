"""The monitor run: compare each job's new partitions, requests and labels with its champion's training."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dmls_core.errors import DmlsError, NotFoundError
from dmls_core.monitoring import inference_log, new_partitions, sandboxed
from dmls_core.monitoring.drift import DriftResult, now
from dmls_core.monitoring.findings import DriftCheck, Notify, publish
from dmls_core.monitoring.jobs import KnownJob, MonitoredJob, monitored_jobs
from dmls_core.monitoring.label_evaluation import LabelCheck, check_labels
from dmls_core.monitoring.label_files import state_key
from dmls_core.monitoring.new_data import fetch_baseline
from dmls_core.monitoring.pages import drift_page
from dmls_core.monitoring.prometheus import drift_file, drift_metrics
from dmls_core.sandbox import Limits, SandboxError, Worker
from dmls_core.store import ObjectInfo, Store, layout

log = logging.getLogger(__name__)

_MIN_MEMORY = 4 << 30
"""Bytes that the sandbox may allocate at least."""

_TIMEOUT = 900.0
"""Seconds that reading a job's files may take at most."""

_MAX_RETRAINS = 500
"""Runs started per monitor run, below Airflow's default limit of mapped tasks; other jobs wait."""


@dataclass(slots=True)
class MonitorRun:
    """Results of one monitor run over all jobs.

    Attributes:
        label_checks: number of jobs whose versions were evaluated with labels.
        retrains: the runs to start: DAG id and run id.
        states: key -> content of the cursor files, to be written once the runs have been started.
        failures: one line for each comparison that failed.
    """

    drift_checks: list[DriftCheck] = field(default_factory=list)
    label_checks: int = 0
    retrains: set[tuple[str, str]] = field(default_factory=set)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def collecting_failures(self, job: MonitoredJob, action: str) -> Iterator[None]:
        """Record an exception as a failure of the job; the other jobs go on."""
        try:
            yield
        except Exception as error:
            log.exception("%s cannot be %s", job, action)
            self.failures.append(f"{job}: {error if isinstance(error, DmlsError) else repr(error)}")


def run_monitor(
    store: Store,
    mlflow_uri: str,
    notify: Notify,
    memory: int = _MIN_MEMORY,
    cached_jobs: Iterable[KnownJob] = (),
) -> MonitorRun:
    """Compare new data of every monitored job; a failing job does not stop the others.

    The sandbox may allocate ``memory`` bytes, at least ``_MIN_MEMORY``. ``notify`` notifies a job's owner.
    Jobs in ``cached_jobs`` are not read from the store, unless they have changed.

    Raises:
        StoreError: the jobs cannot be listed.
    """
    logged = inference_log.list_requests(store)
    run = MonitorRun()
    limits = Limits(memory=max(memory, _MIN_MEMORY), seconds=_TIMEOUT, cpu_seconds=0, threads=0)
    with Worker(limits) as worker:
        for job in monitored_jobs(store, cached_jobs):
            if len(run.retrains) >= _MAX_RETRAINS:
                break
            files = logged.get((job.team, job.name), [])
            checks: list[DriftCheck] = []
            labels: LabelCheck | None = None
            with run.collecting_failures(job, "compared"):
                for check in _check_drift(store, worker, mlflow_uri, job, files, run):
                    log.info("%s, %s: %s", job, check.source, check.drift.summary)
                    checks.append(check)
            with run.collecting_failures(job, "evaluated with labels"):
                labels = check_labels(store, worker, mlflow_uri, job, files)
            run.drift_checks.extend(checks)
            _record(run, job, checks, labels)
            publish(store, mlflow_uri, job, checks, labels, notify)
    return run


def _record(
    run: MonitorRun, job: MonitoredJob, checks: Sequence[DriftCheck], labels: LabelCheck | None
) -> None:
    """Record the runs to start, and the position up to which labels were read."""
    run_ids = {check.retrain_run_id for check in checks if check.retrain_run_id}
    if labels is not None:
        run.label_checks += bool(labels.page)
        run.states[state_key(job.team, job.name)] = labels.state.as_json()
        if labels.failure:
            run.failures.append(f"{job}: {labels.failure}")
        if labels.decayed_champion and job.spec["drift"]["action"] == "retrain":
            run_ids.add(_run_id(labels.decayed_champion, now()))
    run.retrains.update((layout.dag_id(job.team, job.name), run_id) for run_id in run_ids)


def _check_drift(
    store: Store,
    worker: Worker,
    mlflow_uri: str,
    job: MonitoredJob,
    logged: Sequence[ObjectInfo],
    run: MonitorRun,
) -> Iterator[DriftCheck]:
    """Compare a job's new partitions and requests; write page, JSON and metrics of each comparison.

    A repeated call with the same files writes the same objects.
    """
    yield from _check_partitions(store, worker, mlflow_uri, job, run)
    yield from _check_requests(store, worker, mlflow_uri, job, logged, run)


def _check_requests(
    store: Store,
    worker: Worker,
    mlflow_uri: str,
    job: MonitoredJob,
    files: Sequence[ObjectInfo],
    run: MonitorRun,
) -> Iterator[DriftCheck]:
    """Compare new requests if there are enough rows; otherwise they wait for more.

    Files that crash the sandbox count as compared: they would crash it in every run.
    """
    from dmls_core.tracking.registry import find_champion

    cursor = inference_log.read_cursor(store, job.team, job.name)
    new = inference_log.new_requests(files, cursor)
    if not new:
        return
    champion = find_champion(mlflow_uri, layout.model_name(job.team, job.name))
    with TemporaryDirectory(prefix="dmls-monitor-") as scratch:
        paths = inference_log.download_newest(store, new, Path(scratch))
        cursor = cursor.advance(new)
        state = layout.monitor_folder(job.team, job.name) + inference_log.STATE_FILE
        try:
            drift = _compare(store, worker, job, champion.run_key, paths, "requests")
        except SandboxError:
            run.states[state] = cursor.as_json()
            raise
    if drift.verdict == "too few rows":
        return
    page = _write_results(store, job, drift, cursor.name, champion.run_key, "requests")
    run.states[state] = cursor.as_json()
    run_id = _retrain_run_id(job, drift, champion.run_key)
    yield DriftCheck(job, "requests", drift, champion.version, page, run_id)


def _check_partitions(
    store: Store, worker: Worker, mlflow_uri: str, job: MonitoredJob, run: MonitorRun
) -> Iterator[DriftCheck]:
    """Compare new partitions one by one; a partition with too few rows is joined with the next one.

    A partition that the champion was trained on is compared with the previous champion, if that is known: its
    drift starts no run. A partition that crashes the sandbox counts as compared.
    """
    from dmls_core.tracking.registry import find_champion

    cursor = new_partitions.read_partition_cursor(store, job.team, job.name)
    new = new_partitions.list_new_periods(store, job.team, job.name, job.spec, cursor.until)
    if not new:
        return
    try:
        champion = find_champion(mlflow_uri, layout.model_name(job.team, job.name))
    except NotFoundError:
        return  # nothing to compare with yet
    state = layout.monitor_folder(job.team, job.name) + new_partitions.STATE_FILE
    pending: new_partitions.PeriodFiles | None = None
    for period in new[: new_partitions.MAX_PERIODS]:
        trained_on = period.end <= champion.until
        baseline = cursor.run_key if trained_on else champion.run_key
        if not baseline:
            continue
        pending = pending.joined(period) if pending else period
        with TemporaryDirectory(prefix="dmls-monitor-") as scratch:
            paths = pending.download(store, Path(scratch), job.spec["data"]["format"])
            source = new_partitions.source_name(job.team, job.name, pending.files)
            try:
                drift = _compare(store, worker, job, baseline, paths, source)
            except SandboxError:
                run.states[state] = new_partitions.PartitionCursor(period.end, baseline).as_json()
                raise
        if drift.verdict == "too few rows":
            continue
        page = _write_results(store, job, drift, pending.name, baseline, source)
        run_id = "" if trained_on else _retrain_run_id(job, drift, champion.run_key)
        run.states[state] = new_partitions.PartitionCursor(period.end, champion.run_key).as_json()
        pending = None
        yield DriftCheck(job, source, drift, champion.version, page, run_id)
    until = run.states.get(state, {}).get("until", cursor.until)
    end = new_partitions.PartitionCursor(max(until, champion.until), champion.run_key)
    run.states[state] = end.as_json()


def _compare(
    store: Store, worker: Worker, job: MonitoredJob, run_key: str, paths: Sequence[Path], source: str
) -> DriftResult:
    """Compare files with the baseline of a run's model, which is downloaded to their folder."""
    model = fetch_baseline(store, job.team, job.name, run_key, paths[0].parent)
    fields = worker.call(
        sandboxed.compare_files,
        str(model),
        list(map(str, paths)),
        float(job.spec["drift"]["threshold"]),
        {**job.spec["data"], "format": None},  # each copy has the name of its format
        limits=job.limits(worker.limits),
        hint=sandboxed.HINT,
        file=source,
    )
    return DriftResult.from_fields(fields)


def _retrain_run_id(job: MonitoredJob, drift: DriftResult, run_key: str) -> str:
    retrain = drift.verdict == "drifted" and job.spec["drift"]["action"] == "retrain"
    return _run_id(run_key, drift.at) if retrain else ""


def _run_id(run_key: str, at: str) -> str:
    """Return the id of the run that drift or decay of a champion starts: at most one per day."""
    return f"drift__{run_key}__{at[:10]}"


def _write_results(
    store: Store, job: MonitoredJob, drift: DriftResult, name: str, run_key: str, source: str
) -> str:
    """Write the files of a comparison; return the address of the page."""
    document = drift.as_json(team=job.team, job=job.name, run_key=run_key, source=source)
    data_source = "requests" if source == "requests" else "data"
    files = {
        "drift.html": drift_page(drift, f"{job}: {source}").encode(errors="replace"),
        "drift.prom": drift_metrics(drift, job.team, job.name, data_source).encode(),
        "drift.json": json.dumps(document, indent=1, allow_nan=False).encode(),
    }
    folder = layout.monitor_folder(job.team, job.name)
    for subfolder in (f"{name}/", layout.DRIFT_FOLDERS[data_source]):
        for file, content in files.items():
            store.put(f"{folder}{subfolder}{file}", content)
    store.put(drift_file(job.team, job.name, data_source), files["drift.prom"])
    return f"{store.url}/{folder}{name}/drift.html"
