"""The platform: services, GPUs, pools, the queue, versions, and what `dmls doctor` says."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, Field

from dmls_core.airflow.settings import airflow_settings
from dmls_core.web.index.waits import Lease, read_leases
from dmls_core.web.platform.doctor import ask_doctor
from dmls_core.web.platform.machines import (
    GpuUse,
    PoolUse,
    Queued,
    airflow_health,
    read_gpus,
    read_pools,
    read_queue,
    read_versions,
)
from dmls_core.web.platform.probes import Health, probe_all, service_probes
from dmls_core.web.security import Caller, readable

router = APIRouter(prefix="/platform", tags=["Platform"])


class Platform(BaseModel):
    """How the platform is."""

    services: list[Health]
    gpus: list[GpuUse] = Field(description="Of the API server's machine.")
    gpus_offered: int = Field(description="How many GPUs the runner offers to trainers.")
    pools: list[PoolUse]
    leases: list[Lease] = Field(description="Trainers at work, of those jobs that the caller may see.")
    leased: int = Field(description="How many are at work in all.")
    queue: list[Queued] = Field(description="Of those jobs that the caller may see.")
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
    queue, leases = read_queue(session), read_leases(session)
    seen = readable(user, {entry.dag_id for entry in queue} | {lease.dag_id for lease in leases})
    return Platform(
        services=probe_all(probes),
        gpus=read_gpus(),
        gpus_offered=settings.gpus,
        pools=read_pools(session),
        leases=[lease for lease in leases if lease.dag_id in seen],
        leased=len(leases),
        queue=[entry for entry in queue if entry.dag_id in seen],
        waiting=len(queue),
        versions=read_versions(),
        runner=settings.runner,
    )


@router.get("/doctor", summary="Ask dmls doctor", dependencies=[Depends(asks_doctor)])
def doctor(again: bool = False) -> list[Check]:
    """Return what `dmls doctor` finds on the API server's machine, at most a minute old."""
    checks: list[dict[str, Any]] = ask_doctor(airflow_settings(), again=again)
    return [Check(**check) for check in checks]
