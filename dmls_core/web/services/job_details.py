"""Read one job: its state, its versions, its history, and what differs between its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from dmls_core.airflow import api_keys, database
from dmls_core.airflow.auth import DagAccessEntity, User, is_authorized, may_approve
from dmls_core.airflow.database import LogEvent, Session
from dmls_core.airflow.runs.job import PARAM
from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.intake import read_status
from dmls_core.store import (
    JobRecord,
    ProcessFailure,
    Registry,
    ServedModel,
    Store,
    layout,
    read_process_failures,
    read_served,
)
from dmls_core.web.services.job_index import job_index
from dmls_core.web.services.job_sources import served_version
from dmls_core.web.services.runs import Run, read_json
from dmls_core.web.services.waiting_times import Start


class Rights(BaseModel):
    """What Airflow allows the caller to do with the job."""

    deploy: bool
    run: bool
    change: bool
    retire: bool


class JobDetails(BaseModel):
    """The current state of a job."""

    job: str = Field(description="`<team>/<name>`")
    state: str
    message: str
    errors: list[dict[str, Any]] = Field(description="Errors in the submission or of its run.")
    links: dict[str, str]
    updated: str
    version: int | None
    spec: dict[str, Any] | None = Field(description="Spec of the current version, with all defaults.")
    data: list[dict[str, Any]]
    run_key: str | None
    served: int | None = Field(description="Version that Triton serves.")
    served_model: ServedModel | None = Field(description="What is served, its score, and since when.")
    process_failures: list[ProcessFailure] = Field(
        description="Processes of the model in Triton that ended within a day, or do not answer yet."
    )
    drift: list[dict[str, Any]] = Field(
        description="Latest comparisons of requests, new data and late labels with the training."
    )
    paused: bool
    next_run: str | None
    schedule: str = Field(description="Schedule in words.")
    queue: int | None = Field(description="Position among the runs that wait for the same pool, from 1.")
    waiting: str = Field(description="Why the job waits.")
    starts: Start | None = Field(description="When the waiting run starts, if it can be said.")
    may: Rights

    def serves(self, run: Run) -> bool:
        """Return whether a run's model is served: as this run's, or as that of a run with the same key."""
        if not self.served:
            return False
        key = self.served_model.run if self.served_model else ""
        return run.served_as == self.served or (run.run_key == key != "")


class Change(BaseModel):
    """A key that differs from the previous version."""

    key: str
    before: Any
    after: Any


class JobVersion(BaseModel):
    """One accepted version."""

    version: int
    admitted: str
    spec_sha256: str
    run_key: str
    data: list[dict[str, Any]]
    changes: list[Change] = Field(description="Changes in spec and data since the previous version.")


def read_job(session: Session, store: Store, user: User, team: str, name: str) -> JobDetails:
    """Return everything about a job except its runs; raise ``NotFoundError`` without a submission or job."""
    registry = Registry(store)
    status, record = read_status(store, team, name), registry.job(team, name)
    if status is None and record is None:
        raise NotFoundError(
            ValidationIssue(f"there is no job {team}/{name}", hint="the Jobs page lists all jobs")
        )
    dag = database.dag_state(session, layout.dag_id(team, name))
    rows = job_index().snapshot().rows
    row = next((row for row in rows if (row.team, row.name) == (team, name)), None)
    served = read_served(store, team, name) if record else None
    retired = record is not None and record.state == "retired"
    state = "retired" if retired else status.state if status else "registered"
    return JobDetails(
        job=f"{team}/{name}",
        state=state,
        message=status.message if status else "",
        errors=[problem.as_json() for problem in status.errors] if status else [],
        links=dict(status.links) if status else {},
        updated=status.updated if status else "",
        version=record.version if record else None,
        spec=registry.spec(record.spec_sha256) if record else None,
        data=record.as_json()["data"] if record else [],
        run_key=(status.run_folder_key if status else None) or (record.run_key if record else None),
        served=served_version(served, state, row.served if row else None),
        served_model=served,
        process_failures=read_process_failures(store, layout.model_name(team, name)).recent()
        if served
        else [],
        drift=_read_drift(store, team, name),
        paused=bool(dag and dag.paused),
        next_run=dag.next_run.isoformat() if dag and dag.next_run else None,
        schedule=dag.schedule if dag else "",
        queue=row.queue if row else None,
        waiting=row.waiting if row else "",
        starts=row.starts if row else None,
        may=_rights(user, team, layout.dag_id(team, name)),
    )


def _rights(user: User, team: str, dag_id: str) -> Rights:
    return Rights(
        deploy=is_authorized(user, "PUT", dag_id, DagAccessEntity.HITL_DETAIL) and may_approve(user, team),
        run=is_authorized(user, "POST", dag_id, DagAccessEntity.RUN),
        change=is_authorized(user, "PUT", dag_id),
        retire=is_authorized(user, "DELETE", dag_id),
    )


def _read_drift(store: Store, team: str, name: str) -> list[dict[str, Any]]:
    comparisons = {
        source: read_json(store, layout.latest_comparison(team, name, source, "json"))
        for source in layout.COMPARED
    }
    return [drift | {"compared": source} for source, drift in comparisons.items() if drift]


def read_versions(store: Store, team: str, name: str) -> list[JobVersion]:
    """Return the latest accepted versions of a job, newest first, each with its changes."""
    registry = Registry(store)
    versions = registry.versions(team, name)
    documents = [_document(registry, version) for version in versions]
    pairs = zip(documents[1:], documents, strict=False)
    changes = [*(differences(before, after) for before, after in pairs), []]
    return [
        JobVersion(
            version=version.version,
            admitted=version.admitted,
            spec_sha256=version.spec_sha256,
            run_key=version.run_key,
            data=version.as_json()["data"],
            changes=[Change(key=key, before=before, after=after) for key, (before, after) in changed],
        )
        for version, changed in zip(versions, changes, strict=False)
    ]


def _document(registry: Registry, version: JobRecord) -> dict[str, Any]:
    """Return what versions are compared by: the spec, and the data files by name."""
    data = {item.key.rpartition("/")[2]: f"{item.size:,} bytes, ETag {item.etag}" for item in version.data}
    return {**registry.spec(version.spec_sha256), "data file": data}


class Difference(NamedTuple):
    """A key whose values differ; a value is ``None`` in documents that lack the key."""

    key: str
    values: tuple[Any, ...]


def differences(*documents: Mapping[str, Any]) -> list[Difference]:
    """Return the leaves that are not the same in all ``documents``, sorted by key."""
    leaves = [flatten(document) for document in documents]
    keys = sorted(set().union(*leaves))
    rows = [Difference(key, tuple(values.get(key) for values in leaves)) for key in keys]
    return [row for row in rows if any(value != row.values[0] for value in row.values[1:])]


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a document by dotted key.

    Named tables in a list, such as a spec's models, are keyed by name: a new entry changes no other keys.
    """
    leaves: dict[str, Any] = {}
    for key, value in document.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{path}.")
        elif isinstance(value, Sequence) and value and all(_is_named(entry) for entry in value):
            for entry in value:
                rest = {name: part for name, part in entry.items() if name != "name"}
                leaves |= flatten(rest, f"{path}.{entry['name']}.") or {f"{path}.{entry['name']}": True}
        else:
            leaves[path] = list(value) if isinstance(value, tuple) else value
    return leaves


def _is_named(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("name"), str)


ROLLED_BACK, UNDEPLOYED = "dmls_rollback", "dmls_undeploy"
RETIRED, CHANGED_SPEC, SCORED = "dmls_retire", "dmls_respec", "dmls_score"
DELETED_FILE = "dmls_delete_file"
"""Events of commands that do not go through Airflow's own REST API."""

_EVENTS = {
    ROLLED_BACK: "rolled back",
    UNDEPLOYED: "stopped serving",
    RETIRED: "retired the job",
    CHANGED_SPEC: "submitted a changed spec",
    SCORED: "had a file scored",
    DELETED_FILE: "deleted a scored file",
    api_keys.CREATED: "created an API key",
    api_keys.REVOKED: "revoked an API key",
    "trigger_dag_run": "started a run",
    "update_hitl_detail": "answered the approval",
    "patch_dag": "changed the DAG",
    "clear_dag_run": "cleared a run",
    "post_clear_task_instances": "cleared tasks",
}
"""Events that users cause, in words; the audit log holds many others of a DAG."""


def describe_event(event: LogEvent) -> tuple[str, str]:
    """Return what a user did, in words, and details such as the changed parameters."""
    words = _EVENTS.get(event.event, event.event)
    try:
        extra = json.loads(event.extra or "{}")
    except ValueError:
        extra = {}
    if not isinstance(extra, dict):
        return words, ""
    match event.event:
        case "trigger_dag_run":
            changes = (extra.get("conf") or {}).get(PARAM) or {}
            return words, ", ".join(_describe_change(key, value) for key, value in changes.items())
        case "update_hitl_detail":
            chosen = extra.get("chosen_options") or [""]
            return {"Approve": "approved the model", "Reject": "declined the model"}.get(chosen[0], words), ""
        case "patch_dag" if "is_paused" in extra:
            return "paused the job" if extra.get("is_paused") else "resumed the job", ""
        case api_keys.CREATED | api_keys.REVOKED:
            return words, str(extra.get("name", ""))
        case "dmls_score":
            return words, str(extra.get("file", ""))
        case "dmls_undeploy" if extra.get("version"):
            return words, f"version {extra.get('version')}"
        case "dmls_rollback":
            version, previous = extra.get("version"), extra.get("previous")
            again = ("served a version again", f"version {version}")
            return (words, f"to version {version}, from {previous}") if previous else again
    return words, ""


def _describe_change(key: str, value: object) -> str:
    """Return a change to the spec of one run, such as ``max_depth = 3 to 12``."""
    if key != "hyperparameters" or not isinstance(value, dict):
        return f"{key} = {json.dumps(value)}"
    tables = [pair for model in value.values() if isinstance(model, dict) for pair in model.items()]
    return ", ".join(f"{name} = {_describe_values(table)}" for name, table in tables)


def _describe_values(table: object) -> str:
    match table:
        case {"min": low, "max": high}:
            return f"{low} to {high}"
        case {"values": [*values]}:
            return " or ".join(map(str, values))
        case {"value": value}:
            return str(value)
    return json.dumps(table)


def read_events(session: Session, dag_id: str, limit: int = 50) -> list[LogEvent]:
    """Return the user actions on a job, latest first."""
    return database.audit_events(session, dag_id, _EVENTS, limit)
