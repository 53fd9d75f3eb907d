"""Read a job's history of user actions from Airflow's audit log."""

from __future__ import annotations

import json

from dmls_core.airflow import metadata
from dmls_core.airflow.job import PARAM
from dmls_core.airflow.metadata import LogEvent, Session

ROLLED_BACK, RETIRED, CHANGED_SPEC = "dmls_rollback", "dmls_retire", "dmls_respec"
"""Events of commands that do not go through Airflow's own REST API."""

EVENTS = {
    ROLLED_BACK: "rolled back",
    RETIRED: "retired the job",
    CHANGED_SPEC: "submitted a changed spec",
    "dmls_submit": "submitted",
    "trigger_dag_run": "started a run",
    "update_hitl_detail": "answered the approval",
    "patch_dag": "changed the DAG",
    "clear_dag_run": "cleared a run",
    "post_clear_task_instances": "cleared tasks",
}
"""Events that users cause, in words; the audit log holds many others of a DAG."""


def describe_event(event: LogEvent) -> tuple[str, str]:
    """Return what a user did, in words, and details such as the changed parameters."""
    words = EVENTS.get(event.event, event.event)
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


def read_events(session: Session, dag_id: str, limit: int = 50) -> list[LogEvent]:
    """Return the user actions on a job, latest first."""
    return metadata.audit_events(session, dag_id, EVENTS, limit)
