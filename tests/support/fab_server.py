"""Airflow's API server with the FAB auth manager, the DMLS page, and a database with users of two teams.

``python -m tests.support.fab_server PORT ROLES``, with Airflow's configuration in the environment; ``ROLES``
is a file for ``airflow roles import``. The DAGs of jobs in the store become DAGs of Airflow as its DAG
processor makes them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from uuid import uuid4

import uvicorn
from airflow.api_fastapi.app import cached_app
from airflow.cli.commands.dag_command import dag_reserialize
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.models.dag_version import DagVersion
from airflow.models.hitl import HITLDetail
from airflow.providers.fab.auth_manager.cli_commands.role_command import roles_import
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.support.airflow_database import add_run, add_task

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

ADA = "2"
"""FAB's ID of the second of them."""


def add_users(roles: str) -> None:
    roles_import(Namespace(file=roles, verbose=False))
    with get_application_builder() as builder:
        manager = builder.sm
        for name, granted in USERS.items():
            found = [manager.find_role(role) for role in granted]
            manager.add_user(name, name, "x", f"{name}@example.com", found, name)


def add_approval() -> None:
    """Have a run wait for an approval by ``ada``, as the task ``approve`` requests it for ``approvers``."""
    job, task = "dmls.shop.iris", uuid4()
    with create_session() as session:
        version = session.scalars(select(DagVersion.id).where(DagVersion.dag_id == job)).first()
        add_run(session, job, "waiting", "running")
        add_task(session, job, "waiting", "approve", "deferred", id=task, dag_version_id=version)
        detail = HITLDetail(ti_id=task, options=["Approve", "Reject"], subject="Deploy?", params={})
        detail.assignees = [{"id": ADA, "name": ADA}]
        session.add(detail)


if __name__ == "__main__":
    initdb()
    add_users(sys.argv[2])
    for bundle in DagBundlesManager().get_all_dag_bundles():
        bundle.initialize()
        bundle.refresh()
    dag_reserialize(Namespace(bundle_name=None, verbose=False))
    add_approval()
    uvicorn.run(cached_app("all"), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
