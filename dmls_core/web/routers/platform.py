"""REST API of the platform, and the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel

from dmls_core.airflow.database import SessionDep
from dmls_core.airflow.operations.capacity import plan_platform
from dmls_core.airflow.settings import airflow_settings
from dmls_core.monitoring.capacity import CapacityPlan
from dmls_core.web.dependencies import Caller, ClusterViewer, OpenApi, check_doctor_access
from dmls_core.web.services.platform_overview import (
    PlatformOverview,
    QueuedRun,
    read_platform,
    read_queue,
    run_doctor,
)

router = APIRouter(tags=["Platform"])


class DoctorCheck(BaseModel):
    """One check of `dmls doctor`."""

    name: str
    state: str
    message: str
    hint: str = ""


@router.get("/platform", summary="Show the platform")
def show_platform(session: SessionDep, user: ClusterViewer) -> PlatformOverview:
    """Return the state of each part of the platform; a service that does not respond in time is `slow`."""
    return read_platform(session, user)


@router.get("/queue", summary="List the runs that wait")
def list_queue(session: SessionDep, caller: Caller) -> list[QueuedRun]:
    """Return the runs that wait, of the jobs that the caller may see, by pool and position."""
    return read_queue(session, caller)


@router.get("/platform/doctor", summary="Run dmls doctor", dependencies=[Depends(check_doctor_access)])
def show_doctor(
    again: Annotated[bool, Query(description="Run the checks even if a result is cached.")] = False,
) -> list[DoctorCheck]:
    """Return the checks of `dmls doctor` on the API server's machine, at most a minute old."""
    return [DoctorCheck(**check) for check in run_doctor(airflow_settings(), again=again)]


Factor = Annotated[float, Query(ge=0.01, le=1000)]


@router.get("/platform/capacity", summary="Plan the platform's capacity")
def show_capacity(
    session: SessionDep, _user: ClusterViewer, jobs: Factor = 1.0, rows: Factor = 1.0
) -> CapacityPlan:
    """Return what the platform needs for `jobs` times its jobs and `rows` times their rows.

    Replays the finished runs of the last four weeks, read at most five minutes ago, on the pools' slots.
    """
    return plan_platform(session, jobs=jobs, rows=rows)


@router.get("/openapi.json", include_in_schema=False)
def openapi(document: OpenApi) -> dict[str, Any]:
    """Return the OpenAPI document of the REST API."""
    return document
