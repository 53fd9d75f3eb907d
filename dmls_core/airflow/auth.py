"""Airflow's login, and a user's permissions for the DAG of a job."""

from __future__ import annotations

from collections import defaultdict

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser as User
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep as CurrentUser
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from airflow.configuration import conf
from fastapi import Request

from dmls_core.airflow import database
from dmls_core.airflow.settings import airflow_settings, team_entries, uses_fab

_ACTIONS = {"GET": "can_read", "PUT": "can_edit", "DELETE": "can_delete"}
"""Method on a DAG -> Airflow's action in ``access_control``."""

__all__ = ["CurrentUser", "DagAccessEntity", "ResourceMethod", "User"]
"""Of Airflow, for those who call this module."""


async def current_user(request: Request) -> User:
    """Return the user of a request as ``CurrentUser`` does, for a route that accepts API keys, too."""
    return await get_user(request, None, await bearer_scheme(request))


def _airflow_team(dag_id: str) -> str | None:
    """Return the team of Airflow that a job belongs to, also of one that has no DAG yet."""
    if not conf.getboolean("core", "multi_team"):
        return None
    return team_entries().get(_team_of(dag_id)) or database.airflow_team(dag_id)


def is_authorized(
    user: User, method: ResourceMethod, dag_id: str, entity: DagAccessEntity | None = None
) -> bool:
    """Return whether Airflow allows ``method`` on a DAG, which may not exist yet, or on its ``entity``."""
    manager = get_auth_manager()
    details = DagDetails(id=dag_id, team_name=_airflow_team(dag_id))
    if manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=user):
        return True
    # As Airflow has it: who may read a DAG may read what belongs to it, who may edit it may change that.
    on_dag = method if entity is None or method == "GET" else "PUT"
    if _team_of(dag_id) not in _teams_by_role(user, on_dag):
        return False
    return entity is None or manager.is_authorized_dag(method=method, access_entity=entity, user=user)


def _teams_by_role(user: User, method: str) -> set[str]:
    """Return the teams whose DAGs ``access_control`` opens to the roles of ``user``.

    FAB knows the permissions of DAGs that exist, so it cannot decide on those to come. Other auth managers
    need no ``access_control``, and Airflow ignores it.
    """
    teams = airflow_settings().access_control if uses_fab() else {}
    if not teams:
        return set()
    action = _ACTIONS.get(method)
    roles = {role.name for role in getattr(user, "roles", ())}
    return {
        team
        for team, grants in teams.items()
        if any(action in actions for role, actions in grants.items() if role in roles)
    }


def _team_of(dag_id: str) -> str:
    return dag_id.removeprefix("dmls.").partition(".")[0]


def authorized_dags(user: User, dag_ids: set[str], method: ResourceMethod = "GET") -> set[str]:
    """Return the DAGs on which ``user`` may do ``method``, in one call for each of Airflow's teams."""
    by_team: dict[str | None, set[str]] = {None: dag_ids}
    if conf.getboolean("core", "multi_team"):
        by_team = defaultdict(set)
        for dag_id in dag_ids:
            by_team[_airflow_team(dag_id)].add(dag_id)
    manager, by_role = get_auth_manager(), _teams_by_role(user, method)
    return {dag_id for dag_id in dag_ids if _team_of(dag_id) in by_role} | {
        dag_id
        for team, members in by_team.items()
        for dag_id in manager.filter_authorized_dag_ids(
            dag_ids=members, user=user, method=method, team_name=team
        )
    }


def may_approve(user: User, team: str) -> bool:
    """Return whether the platform lets ``user`` decide on models of a team, by ``approvers``."""
    approvers = airflow_settings().approvers.get(team)
    return not approvers or str(user.get_id()) in approvers


def may_view_cluster(user: User) -> bool:
    """Return whether Airflow shows ``user`` its own health and activity."""
    return get_auth_manager().is_authorized_view(access_view=AccessView.CLUSTER_ACTIVITY, user=user)


def may_view_site(user: User) -> bool:
    """Return whether ``user`` has any role: a login alone opens no page of Airflow."""
    return get_auth_manager().is_authorized_view(access_view=AccessView.WEBSITE, user=user)


def may_view_connections(user: User) -> bool:
    """Return whether Airflow shows ``user`` its connections."""
    return get_auth_manager().is_authorized_connection(method="GET", user=user)


def login_url() -> str:
    """Return the URL of Airflow's login."""
    return get_auth_manager().get_url_login()
