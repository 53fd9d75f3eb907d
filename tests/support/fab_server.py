"""Airflow's API server with the FAB auth manager, the DMLS page, and a database with users of two teams.

``python -m tests.support.fab_server PORT ROLES``, with Airflow's configuration in the environment; ``ROLES``
is a file for ``airflow roles import``. The DAGs of jobs in the store become DAGs of Airflow as its DAG
processor makes them.
"""

from __future__ import annotations

import sys
from argparse import Namespace

import uvicorn
from airflow.api_fastapi.app import cached_app
from airflow.cli.commands.dag_command import dag_reserialize
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.providers.fab.auth_manager.cli_commands.role_command import roles_import
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from airflow.utils.db import initdb

USERS = {
    "root": ("Admin",),
    "ada": ("ml", "shop"),
    "ali": ("ml", "shop"),
    "bea": ("ml", "bank"),
    "tess": ("ml",),
    "vic": ("Viewer",),
    "nora": ("Public",),
}
"""Users, whose password is their name, and their roles."""


def add_users(roles: str) -> None:
    roles_import(Namespace(file=roles, verbose=False))
    with get_application_builder() as builder:
        manager = builder.sm
        for name, granted in USERS.items():
            found = [manager.find_role(role) for role in granted]
            manager.add_user(name, name, "x", f"{name}@example.com", found, name)


if __name__ == "__main__":
    initdb()
    add_users(sys.argv[2])
    for bundle in DagBundlesManager().get_all_dag_bundles():
        bundle.initialize()
        bundle.refresh()
    dag_reserialize(Namespace(bundle_name=None, verbose=False))
    uvicorn.run(cached_app("all"), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
