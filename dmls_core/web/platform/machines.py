"""Pools, the queue before them, GPUs, and versions."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from dmls_core.hardware import find_gpus
from dmls_core.web.index.waits import WAITING, job_of, read_waits

SMI_SECONDS = 5
SMI_FIELDS = ("index", "name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu")

PACKAGES = ("dmls", "apache-airflow", "mlflow-skinny", "tritonclient", "treelite", "boto3", "fastapi")


@dataclass(frozen=True, slots=True)
class PoolUse:
    """One of DMLS's pools."""

    name: str
    slots: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU of the API server's machine; what no driver tells is ``None``."""

    index: int
    name: str
    memory_mib: int
    used_mib: int | None = None
    percent: int | None = None
    celsius: int | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """A run that waits: its place before ``pool``, from 1, if it stands there already, and why it waits."""

    job: str
    dag_id: str
    place: int | None
    pool: str
    reason: str


def read_pools(session: Session) -> list[PoolUse]:
    """Return DMLS's pools and how many trainers run and wait in each."""
    counts: dict[tuple[str, str], int] = {}
    query = (
        select(TaskInstance.pool, TaskInstance.state, func.count())
        .where(TaskInstance.pool.startswith("dmls_", autoescape=True))
        .where(TaskInstance.state.in_(("running", "queued", "scheduled")))
        .group_by(TaskInstance.pool, TaskInstance.state)
    )
    for pool, state, count in session.execute(query):
        counts[pool, str(state)] = count
    ours = Pool.pool.startswith("dmls_", autoescape=True)
    pools = session.execute(select(Pool.pool, Pool.slots).where(ours).order_by(Pool.pool))
    return [
        PoolUse(
            str(name),
            slots,
            running=counts.get((str(name), "running"), 0),
            waiting=sum(counts.get((str(name), state), 0) for state in WAITING),
        )
        for name, slots in pools
    ]


def read_queue(session: Session) -> list[Queued]:
    """Return the runs that wait, by pool and place; last those that stand in no queue yet."""
    waits = read_waits(session).items()
    queued = [Queued(job_of(dag_id), dag_id, wait.place, wait.pool, wait.reason) for dag_id, wait in waits]
    return sorted(queued, key=lambda entry: (entry.place is None, entry.pool, entry.place or 0, entry.job))


def read_gpus() -> list[GpuUse]:
    """Return the GPUs of this machine, with their use where ``nvidia-smi`` tells it."""
    smi = shutil.which("nvidia-smi")
    if smi:
        command = [smi, f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECONDS, check=True)
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


def read_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter, as the API server has them."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def airflow_health() -> str:
    """Return what Airflow says of its own components.

    Raises:
        PlatformError: one of them is not healthy.
    """
    from airflow.api.common.airflow_health import get_airflow_health

    from dmls_core.errors import PlatformError

    health: dict[str, Any] = get_airflow_health()
    states = {name: str(entry.get("status")) for name, entry in health.items() if entry.get("status")}
    ill = [f"{name} is {state}" for name, state in states.items() if state != "healthy"]
    if ill:
        raise PlatformError(", ".join(ill))
    return json.dumps(sorted(states)).strip("[]").replace('"', "") + " are healthy"
