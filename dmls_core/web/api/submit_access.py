"""Who may drop something for a job: whoever may start a run of its DAG, which need not exist yet.

What changes a job that is there already asks for the right to change its DAG besides.
"""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from fastapi import Depends, HTTPException

from dmls_core.store import Registry, Store
from dmls_core.web.security import JobCaller, job_may, may

Submitter = Annotated[JobCaller, Depends(job_may("POST", DagAccessEntity.RUN))]
"""The caller of a route below ``{team}/{name}`` who may drop something there."""


def may_submit(user: BaseUser, team: str, name: str) -> bool:
    """Say whether a user may drop something for a job."""
    return may(user, "POST", team, name, DagAccessEntity.RUN)


def check_change(caller: JobCaller, store: Store) -> None:
    """Answer 403 if the job is there already and the caller may not change it."""
    if Registry(store).job(caller.team, caller.name) and not may(
        caller.user, "PUT", caller.team, caller.name
    ):
        raise HTTPException(403, f"Airflow does not let you change the DAG {caller.dag_id}")
