"""Who did what and when, in Airflow's own audit log."""

from __future__ import annotations

import json
from typing import Any

from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import Session

from dmls_core.orchestration.web.security import JobCaller

SHOWN = frozenset(
    {
        "dmls_rollback",
        "dmls_retire",
        "dmls_respec",
        "dmls_submit",
        "trigger_dag_run",
        "update_hitl_detail",
        "patch_dag",
        "clear_dag_run",
        "post_clear_task_instances",
    }
)
"""Events that people cause, of the many that the audit log holds of a DAG."""


def record(caller: JobCaller, event: str, **extra: Any) -> None:
    """Write that the caller did something that does not go through Airflow's own API.

    Args:
        caller: who, and with which job.
        event: such as ``dmls_rollback``.
        extra: what else is worth knowing of it.
    """
    with create_session() as session:
        session.add(
            Log(
                event=event,
                dag_id=caller.dag_id,
                owner=caller.user_name,
                owner_display_name=caller.user_name,
                extra=json.dumps(extra),
            )
        )


def read_events(session: Session, dag_id: str, limit: int = 50) -> list[Log]:
    """Return what people did with a job, the latest first."""
    query = select(Log).where(Log.dag_id == dag_id, Log.event.in_(SHOWN)).order_by(Log.id.desc()).limit(limit)
    return list(session.scalars(query))
