"""The platform: services, GPUs, pools, the queue, versions, and what `dmls doctor` says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, Field

from dmls_core.orchestration.settings import airflow_settings
from dmls_core.orchestration.web.platform.doctor import ask_doctor
from dmls_core.orchestration.web.platform.machines import (
    airflow_health,
    read_gpus,
    read_pools,
    read_queue,
    read_versions,
)
from dmls_core.orchestration.web.platform.probes import probe_all, service_probes
from dmls_core.orchestration.web.security import Caller, readable

router = APIRouter(prefix="/platform", tags=["Platform"])


class Service(BaseModel):
    """How a service is."""

    name: str
    state: str = Field(description="`ok`, `slow`, `broken` or `missing`.")
    message: str
    milliseconds: float | None
    address: str


class Gpu(BaseModel):
    """A GPU of the API server's machine."""

    index: int
    name: str
    memory_mib: int
    used_mib: int | None
    percent: int | None
    celsius: int | None


class PoolEntry(BaseModel):
    """One of DMLS's pools."""

    name: str
    slots: int
    running: int
    waiting: int


class QueueEntry(BaseModel):
    """A run that waits for a trainer."""

    job: str
    place: int | None
    reason: str


class Platform(BaseModel):
    """How the platform is."""

    services: list[Service]
    gpus: list[Gpu]
    pools: list[PoolEntry]
    queue: list[QueueEntry] = Field(description="Of those jobs that the caller may see.")
    waiting: int = Field(description="How many wait in all.")
    versions: dict[str, str]
    runner: str


class Check(BaseModel):
    """One finding of `dmls doctor`."""

    name: str
    state: str
    message: str
    hint: str = ""


def sees_platform(user: Caller) -> BaseUser:
    """Ask for what Airflow asks for before it shows its own health and activity."""
    if not get_auth_manager().is_authorized_view(access_view=AccessView.CLUSTER_ACTIVITY, user=user):
        raise HTTPException(403, "Airflow does not let you see the cluster's activity")
    return user


def may_ask_doctor(user: BaseUser) -> bool:
    """Say whether Airflow shows the user its connections: addresses and paths are what the doctor tells."""
    return get_auth_manager().is_authorized_connection(method="GET", user=user)


def asks_doctor(user: Caller) -> None:
    """Ask for what Airflow asks for before it shows its connections."""
    if not may_ask_doctor(user):
        raise HTTPException(403, "Airflow does not let you see its connections, of which the doctor tells")


@router.get("", summary="Show how the platform is")
def platform(session: SessionDep, user: BaseUser = Depends(sees_platform)) -> Platform:  # noqa: B008
    """Return how each part is; one that does not answer in time is ``slow``, and holds nothing up."""
    return platform_view(session, user)


def platform_view(session: SessionDep, user: BaseUser) -> Platform:
    """Ask everything at once."""
    settings = airflow_settings()
    probes = {"Airflow": ("this API server", airflow_health), **service_probes(settings)}
    queue = read_queue(session)
    seen = readable(user, {entry.dag_id for entry in queue})
    return Platform(
        services=[Service(**asdict(health)) for health in probe_all(probes)],
        gpus=[Gpu(**asdict(gpu)) for gpu in read_gpus()],
        pools=[PoolEntry(**asdict(pool)) for pool in read_pools(session)],
        queue=[
            QueueEntry(job=entry.job, place=entry.place, reason=entry.reason)
            for entry in queue
            if entry.dag_id in seen
        ],
        waiting=len(queue),
        versions=read_versions(),
        runner=settings.runner,
    )


@router.get("/doctor", summary="Ask dmls doctor", dependencies=[Depends(asks_doctor)])
def doctor(again: bool = False) -> list[Check]:
    """Return what `dmls doctor` finds on the API server's machine, at most a minute old."""
    checks: list[dict[str, Any]] = ask_doctor(airflow_settings(), again=again)
    return [Check(**check) for check in checks]
