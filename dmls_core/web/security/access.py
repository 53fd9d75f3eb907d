"""Airflow's authentication, and its authorisation of DAGs, for jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Path

from dmls_core.store import layout

NAME = f"^{layout.NAME_PATTERN}$"

Team = Annotated[str, Path(pattern=NAME, description="The team that owns the job.")]
Name = Annotated[str, Path(pattern=NAME, description="The job's name within its team.")]


async def signed_in(user: GetUserDep) -> BaseUser:
    """Return who asks, by Airflow's session cookie or a bearer token; 401 for nobody."""
    return user


Caller = Annotated[BaseUser, Depends(signed_in)]


@dataclass(frozen=True, slots=True)
class JobCaller:
    """Who asks, and the job that they may do the asked thing with."""

    user: BaseUser
    team: str
    name: str

    @property
    def dag_id(self) -> str:
        """The job's DAG."""
        return layout.dag_id(self.team, self.name)

    @property
    def user_name(self) -> str:
        """How the user is named in records."""
        return self.user.get_name()


def may(
    user: BaseUser, method: ResourceMethod, team: str, name: str, entity: DagAccessEntity | None = None
) -> bool:
    """Say whether Airflow lets ``user`` do ``method`` with a job's DAG, which need not exist yet.

    Args:
        user: who asks.
        method: ``GET`` looks, ``POST`` creates or triggers, ``PUT`` changes, ``DELETE`` removes.
        team: of the job.
        name: of the job.
        entity: what of the DAG it is about, such as its runs; ``None``: the DAG itself.
    """
    dag_id = layout.dag_id(team, name)
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=entity, details=details, user=user
    )


def readable(user: BaseUser, dag_ids: set[str]) -> set[str]:
    """Return those DAGs that Airflow lets ``user`` look at; of a large number, too, in one go."""
    by_team: dict[str | None, set[str]] = {None: dag_ids}
    if conf.getboolean("core", "multi_team"):
        teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
        by_team = defaultdict(set)
        for dag_id in dag_ids:
            by_team[teams.get(dag_id)].add(dag_id)
    manager = get_auth_manager()
    return {
        dag_id
        for team, members in by_team.items()
        for dag_id in manager.filter_authorized_dag_ids(dag_ids=members, user=user, team_name=team)
    }


def job_may(
    method: ResourceMethod, entity: DagAccessEntity | None = None
) -> Callable[[Team, Name, BaseUser], JobCaller]:
    """Return the dependency of a route below ``/jobs/{team}/{name}``: 403 unless Airflow allows it.

    Args:
        method: see ``may``.
        entity: see ``may``.
    """

    def check(team: Team, name: Name, user: Caller) -> JobCaller:
        if not may(user, method, team, name, entity):
            raise HTTPException(403, f"Airflow does not let you {method} the DAG dmls.{team}.{name}")
        return JobCaller(user, team, name)

    return check
