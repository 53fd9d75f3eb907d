"""Airflow's audit log, the only table of Airflow to which DMLS adds rows of its own."""

from __future__ import annotations

import json
from typing import Any

from airflow.models.log import Log

from dmls_core.airflow import database


def record_event(event: str, dag_id: str, user: str, extra: dict[str, Any]) -> None:
    """Add an entry about a DAG."""
    with database.create_session() as session:
        entry = Log(event=event, dag_id=dag_id, owner=user, owner_display_name=user, extra=json.dumps(extra))
        session.add(entry)
