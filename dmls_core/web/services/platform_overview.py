"""Read the state of the platform: services, GPUs, pools, queue, running trainers, versions, `dmls doctor`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from dmls_core.airflow import database
from dmls_core.airflow.auth import User, authorized_dags
from dmls_core.airflow.database import Session
from dmls_core.airflow.operations.service_health import Health, probe_all, service_probes
from dmls_core.airflow.settings import AirflowSettings, airflow_settings
from dmls_core.errors import PlatformError, StoreError
from dmls_core.hardware import find_gpus
from dmls_core.settings import ENVIRONMENT
from dmls_core.store import ProcessFailure, Store, all_process_failures, layout
from dmls_core.web.services import open_store
from dmls_core.web.services.queue import TRAINING, WAITING, Lease, job_of, read_leases, read_waits
from dmls_core.web.services.waiting_times import Start

_SMI_SECONDS = 5
_SMI_FIELDS = ("index", "name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu")

_PACKAGES = ("dmls", "apache-airflow", "mlflow-skinny", "tritonclient", "treelite", "boto3", "fastapi")


@dataclass(frozen=True, slots=True)
class PoolUse:
    """One of DMLS's pools."""

    name: str
    slots: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU of the API server's machine; values that the driver does not report are ``None``."""

    index: int
    name: str
    memory_mib: int
    used_mib: int | None = None
    percent: int | None = None
    celsius: int | None = None


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that waits: its position in the queue of ``pool``, from 1, if it is in one, and why it waits.

    ``starts`` is when it starts, if the jobs before it have run before.
    """

    job: str
    dag_id: str
    place: int | None
    pool: str
    reason: str
    starts: Start | None = None


class PlatformOverview(BaseModel):
    """State of the platform."""

    services: list[Health]
    gpus: list[GpuUse] = Field(description="GPUs of the API server's machine.")
    gpus_offered: int = Field(description="Number of GPUs that the runner offers to trainers.")
    pools: list[PoolUse]
    leases: list[Lease] = Field(description="Trainers at work, of the jobs that the caller may see.")
    leased: int = Field(description="Number of all trainers at work.")
    queue: list[QueuedRun] = Field(description="Runs that wait, of the jobs that the caller may see.")
    waiting: int = Field(description="Number of all runs that wait.")
    process_failures: list[ProcessFailure] = Field(
        description="Processes of Triton that ended within a day, or do not answer yet, latest first."
    )
    versions: dict[str, str]
    runner: str


def read_platform(session: Session, user: User) -> PlatformOverview:
    """Return the state of the platform; a service that does not respond in time is ``slow``."""
    settings = airflow_settings()
    store = open_store()
    queue, leases = _all_waiting(session), read_leases(session)
    readable = authorized_dags(user, {entry.dag_id for entry in queue} | {lease.dag_id for lease in leases})
    return PlatformOverview(
        services=probe_all(service_probes(settings, store)),
        gpus=_read_gpus(),
        gpus_offered=settings.gpus,
        pools=read_pools(session),
        leases=[lease for lease in leases if lease.dag_id in readable],
        leased=len(leases),
        queue=[entry for entry in queue if entry.dag_id in readable],
        waiting=len(queue),
        process_failures=read_failures(store, user),
        versions=_read_versions(),
        runner=settings.runner,
    )


def read_failures(store: Store, user: User) -> list[ProcessFailure]:
    """Return what ended of the models that ``user`` may see, and of the process that small models share.

    Without the store, which its own card reports, nothing is returned.
    """
    try:
        records = dict(all_process_failures(store))
    except StoreError:
        return []
    dags = {model: layout.dag_id(*model.split(".")) for model in records if "." in model}
    readable = authorized_dags(user, set(dags.values()))
    failures = [
        failure
        for model, record in records.items()
        if model not in dags or dags[model] in readable
        for failure in record.recent()
    ]
    return sorted(failures, key=lambda failure: failure.noticed, reverse=True)


def read_pools(session: Session) -> list[PoolUse]:
    """Return DMLS's pools with the numbers of running and waiting trainers."""
    counts = database.task_counts(session)
    return [
        PoolUse(
            name,
            slots,
            running=sum(counts.get((name, state), 0) for state in TRAINING),
            waiting=sum(counts.get((name, state), 0) for state in WAITING),
        )
        for name, slots in database.pool_slots(session, ours=True).items()
    ]


def read_queue(session: Session, user: User) -> list[QueuedRun]:
    """Return the runs that wait, of jobs that ``user`` may see, by pool and position.

    Runs without a queue come last.
    """
    queue = _all_waiting(session)
    readable = authorized_dags(user, {entry.dag_id for entry in queue})
    return [entry for entry in queue if entry.dag_id in readable]


def _all_waiting(session: Session) -> list[QueuedRun]:
    waits = read_waits(session).items()
    queued = [
        QueuedRun(job_of(dag_id), dag_id, wait.position, wait.pool, wait.reason, Start.of(wait.starts))
        for dag_id, wait in waits
    ]
    return sorted(queued, key=lambda entry: (entry.place is None, entry.pool, entry.place or 0, entry.job))


def _read_gpus() -> list[GpuUse]:
    """Return the GPUs of this machine, with their use if ``nvidia-smi`` reports it."""
    smi = shutil.which("nvidia-smi")
    if smi:
        command = [smi, f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError):
            done = None
        if done:
            return [_gpu(line) for line in done.stdout.splitlines() if line.strip()]
    return [GpuUse(gpu.index, gpu.name, gpu.memory >> 20) for gpu in find_gpus()]


def _gpu(line: str) -> GpuUse:
    index, name, percent, used, total, celsius = (part.strip() for part in line.split(","))
    return GpuUse(int(index), name, _int(total) or 0, _int(used), _int(percent), _int(celsius))


def _int(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _read_versions() -> dict[str, str]:
    """Return the versions of Python and of the main packages on the API server."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


_DOCTOR_SECONDS = 60.0

_CACHE_SECONDS = 60.0
"""How long the result of `dmls doctor` is reused."""

_lock = threading.Lock()
_cached: tuple[float, list[dict[str, Any]]] = (-_CACHE_SECONDS, [])


def run_doctor(settings: AirflowSettings, *, again: bool = False) -> list[dict[str, Any]]:
    """Return the checks of `dmls doctor`, cached unless ``again``; concurrent callers share one run.

    Addresses in the environment win over ``settings``. Raises ``PlatformError`` if the command fails.
    """
    global _cached
    with _lock:
        at, checks = _cached
        if again or time.monotonic() - at > _CACHE_SECONDS:
            checks = _run_doctor(settings)
            _cached = (time.monotonic(), checks)
        return checks


def _run_doctor(settings: AirflowSettings) -> list[dict[str, Any]]:
    addresses = {
        ENVIRONMENT[name]: getattr(settings, name)
        for name in ("root", "mlflow_uri", "triton_http", "triton_grpc", "triton_repository")
    }
    environment = {**{name: value for name, value in addresses.items() if value}, **os.environ}
    command = [sys.executable, "-P", "-m", "dmls_core.cli", "doctor", "--json"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_DOCTOR_SECONDS, check=False
        )
        checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise PlatformError(f"`dmls doctor` failed: {error}") from error
    return checks
