"""Who did what and when, in Airflow's own audit log."""

from __future__ import annotations

import json
from typing import Any

from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import Session

from dmls_core.airflow.job import PARAM
from dmls_core.web.security import JobCaller

SHOWN = {
    "dmls_rollback": "rolled back",
    "dmls_retire": "retired the job",
    "dmls_respec": "dropped a changed spec",
    "dmls_submit": "submitted",
    "trigger_dag_run": "started a run",
    "update_hitl_detail": "answered the approval",
    "patch_dag": "changed the DAG",
    "clear_dag_run": "cleared a run",
    "post_clear_task_instances": "cleared tasks",
}
"""Events that people cause, of the many that the audit log holds of a DAG; in words."""


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


def tell(event: Log) -> tuple[str, str]:
    """Return what somebody did, in words, and what else is worth knowing of it."""
    words = SHOWN.get(event.event, event.event)
    try:
        extra = json.loads(event.extra or "{}")
    except ValueError:
        extra = {}
    if not isinstance(extra, dict):
        return words, ""
    match event.event:
        case "trigger_dag_run":
            changes = (extra.get("conf") or {}).get(PARAM) or {}
            return words, ", ".join(f"{key} = {json.dumps(value)}" for key, value in changes.items())
        case "update_hitl_detail":
            chosen = extra.get("chosen_options") or [""]
            return {"Approve": "approved the model", "Reject": "declined the model"}.get(chosen[0], words), ""
        case "patch_dag" if "is_paused" in extra:
            return "paused the job" if extra.get("is_paused") else "resumed the job", ""
        case "dmls_rollback":
            return words, f"to version {extra.get('version')}, from {extra.get('previous')}"
    return words, ""


def read_events(session: Session, dag_id: str, limit: int = 50) -> list[Log]:
    """Return what people did with a job, the latest first."""
    query = select(Log).where(Log.dag_id == dag_id, Log.event.in_(SHOWN)).order_by(Log.id.desc()).limit(limit)
    return list(session.scalars(query))
