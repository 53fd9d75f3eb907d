"""The permissions of FAB's roles on the DAGs of teams, as the ``access_control`` of these DAGs.

Airflow writes them to FAB's tables at each parse. If FAB does not have a role, Airflow refuses every DAG of
the file, so roles that are missing are left out until they exist.
"""

from __future__ import annotations

import logging
from functools import cache

from dmls_core.airflow.settings import TeamRoles, uses_fab

log = logging.getLogger(__name__)

AccessControl = dict[str, dict[str, list[str]]]
"""Role -> resource -> actions, as a DAG's ``access_control``."""


def access_of_teams(roles_of_teams: TeamRoles) -> dict[str, AccessControl]:
    """Return the ``access_control`` of the DAGs of each team in ``roles_of_teams``; needs Airflow's database.

    Without FAB it is empty: Airflow then ignores the ``access_control`` of DAGs.
    """
    if not roles_of_teams or not uses_fab():
        return {}
    from dmls_core.airflow import database

    with database.create_session(scoped=False) as session:
        existing = database.fab_roles(session)
    if missing := {role for roles in roles_of_teams.values() for role in roles} - existing:
        _warn(frozenset(missing))
    return {
        team: {role: {"DAGs": sorted(actions)} for role, actions in roles.items() if role in existing}
        for team, roles in roles_of_teams.items()
    }


@cache
def _warn(missing: frozenset[str]) -> None:
    log.warning("access_control names roles that FAB does not have: %s", ", ".join(sorted(missing)))
