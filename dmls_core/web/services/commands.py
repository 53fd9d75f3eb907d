"""Commands on a job: approve, roll back, undeploy, run, pause, retire, change the spec."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool

from dmls_core.airflow import audit_log
from dmls_core.airflow.jobs import approval
from dmls_core.airflow.jobs.approval import Answer
from dmls_core.airflow.runs.job import PARAM
from dmls_core.airflow.settings import AirflowSettings, airflow_settings, open_repository
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import ConflictError, NotFoundError, ValidationIssue
from dmls_core.intake import read_status
from dmls_core.intake.admission import admit
from dmls_core.monitoring.served_job import ServedJob
from dmls_core.serving import DeployedVersion
from dmls_core.store import ObjectInfo, Registry, Store, layout
from dmls_core.web.services import open_store
from dmls_core.web.services.airflow_api import AirflowApi, quoted
from dmls_core.web.services.job_details import CHANGED_SPEC, RETIRED, ROLLED_BACK, UNDEPLOYED
from dmls_core.web.services.job_index import job_index

_REQUEST_SECONDS = 60.0
"""Longest wait for Airflow to accept an answer: the job's status mentions the approval a moment earlier."""

_SETTLE_SECONDS = 90.0
"""Longest wait for Airflow to act on an answer, for which it may ask once more."""


async def answer_approval(airflow: AirflowApi, team: str, name: str, answer: Answer) -> str:
    """Answer the job's newest approval and return its subject; raise ``ConflictError`` if none waits."""
    status = await run_in_threadpool(read_status, open_store(), team, name)
    if status is None:
        raise NotFoundError(f"there is no job {team}/{name}")
    if status.state != "awaiting approval":
        raise ConflictError(
            f"no model of {team}/{name} waits for approval: the job is {status.state}; {status.message}"
        )
    dag_id = layout.dag_id(team, name)
    subject, task = "", ""
    end = time.monotonic() + _REQUEST_SECONDS
    while True:
        pending = next(iter(await _pending_approvals(airflow, dag_id, answer)), None)
        if pending:
            if not subject:
                end = time.monotonic() + _SETTLE_SECONDS
            subject, task = pending["subject"], _approval_task(dag_id, pending)
            await asyncio.sleep(approval.PAUSE_SECONDS)
            await airflow.call("PATCH", f"{task}/-1/hitlDetails", approval.body_of(answer))
        late = time.monotonic() > end
        if subject and (late or approval.has_settled((await airflow.call("GET", task))["state"])):
            job_index().refresh()
            return subject
        if late:
            raise ConflictError(f"no run of {dag_id} waits for an approval")
        await asyncio.sleep(0.5)


def _approval_task(dag_id: str, pending: Mapping[str, Any]) -> str:
    run = quoted(pending["task_instance"]["dag_run_id"])
    return f"/dags/{quoted(dag_id)}/dagRuns/{run}/taskInstances/{TaskId.APPROVE}"


async def _pending_approvals(airflow: AirflowApi, dag_id: str, answer: Answer) -> list[dict[str, Any]]:
    """Return the approvals that accept an answer now, newest first."""
    path = f"/dags/{quoted(dag_id)}/dagRuns/~/hitlDetails?response_received=false&order_by=-run_after"
    listed = (await airflow.call("GET", path))["hitl_details"]
    return [entry for entry in listed if approval.can_be_answered(entry, answer)]


async def start_run(airflow: AirflowApi, team: str, name: str, changes: dict[str, Any]) -> str:
    """Start a run with ``changes`` to the spec, and return its ID; raise ``SpecError`` for invalid ones."""
    if changes:
        await run_in_threadpool(_check_changes, team, name, changes)
    path = f"/dags/{quoted(layout.dag_id(team, name))}/dagRuns"
    conf = {PARAM: changes} if changes else {}
    run = await airflow.call("POST", path, {"logical_date": None, "conf": conf})
    job_index().refresh()
    return str(run["dag_run_id"])


def _check_changes(team: str, name: str, changes: dict[str, Any]) -> None:
    from dmls_core.models.load import change_spec
    from dmls_core.spec import Spec

    registry = Registry(open_store())
    record = registry.job(team, name)
    if record is None:
        raise NotFoundError(f"there is no job {team}/{name}")
    change_spec(Spec.from_json(registry.spec(record.spec_sha256)), changes)


async def set_paused(airflow: AirflowApi, team: str, name: str, *, paused: bool) -> None:
    """Pause or resume the job's DAG."""
    path = f"/dags/{quoted(layout.dag_id(team, name))}?update_mask=is_paused"
    await airflow.call("PATCH", path, {"is_paused": paused})
    job_index().refresh()


def roll_back(team: str, name: str, version: int | None, user: str) -> DeployedVersion:
    """Serve an earlier version again and make it the champion; see ``ServedJob.roll_back``."""
    with _served_job(team, name) as served:
        deployed = served.roll_back(version, f"{user} on the DMLS page")
    extra = {"version": deployed.version, "previous": deployed.previous}
    audit_log.record_event(ROLLED_BACK, layout.dag_id(team, name), user, extra)
    job_index().refresh()
    return deployed


def undeploy(team: str, name: str, user: str) -> int | None:
    """Stop serving the job's model, and return the version that was served; see ``ServedJob.stop``."""
    with _served_job(team, name) as served:
        version = served.stop(f"{user} on the DMLS page")
    audit_log.record_event(UNDEPLOYED, layout.dag_id(team, name), user, {"version": version})
    job_index().refresh()
    return version


@contextmanager
def _served_job(team: str, name: str) -> Iterator[ServedJob]:
    from dmls_core.serving import Deployment, triton_servers

    settings = _serving_settings()
    with triton_servers(settings.triton_http, settings.triton_grpc, key=settings.load_key()) as servers:
        deployment = Deployment(open_repository(settings), servers, layout.model_name(team, name))
        yield ServedJob(team, name, deployment, settings.mlflow_uri, open_store())


def verified_versions(team: str, name: str) -> tuple[int | None, list[int]]:
    """Return the served version, and the versions that a rollback can serve again."""
    repository = open_repository(_serving_settings())
    model = layout.model_name(team, name)
    return repository.serving(model), list(repository.verified_versions(model))


async def retire(airflow: AirflowApi, team: str, name: str, user: str) -> int:
    """Delete the job's spec, and decline its waiting models; return how many. What is served stays.

    If the spec was deleted in the store, only the models remain to be declined; raise ``NotFoundError`` if
    none waits.
    """
    deleted = await run_in_threadpool(_delete_spec, open_store(), team, name, user)
    dag_id = layout.dag_id(team, name)
    waiting = await _pending_approvals(airflow, dag_id, approval.REJECT)
    if not deleted and not waiting:
        raise NotFoundError(ValidationIssue(f"{team}/{name} has no spec", hint="it is retired already"))
    for pending in waiting:
        path = f"{_approval_task(dag_id, pending)}/-1/hitlDetails"
        await airflow.call("PATCH", path, approval.body_of(approval.REJECT))
    return len(waiting)


def _delete_spec(store: Store, team: str, name: str, user: str) -> bool:
    """Delete the job's spec, which retires it; return False if there is none."""
    key = layout.incoming_file(team, name, layout.SPEC_FILE)
    if store.head(key) is None:
        return False
    store.delete(key)
    admit(store, team, name)
    audit_log.record_event(RETIRED, layout.dag_id(team, name), user, {})
    job_index().refresh()
    return True


def read_spec_text(store: Store, team: str, name: str, limit: int) -> tuple[str, str]:
    """Return the submitted ``spec.toml`` and its ETag."""
    content, info = store.read(layout.incoming_file(team, name, layout.SPEC_FILE), limit=limit)
    return content.decode(errors="replace"), info.etag


def replace_spec(store: Store, team: str, name: str, text: str, *, etag: str, user: str) -> ObjectInfo:
    """Submit a changed spec; raise ``SpecError`` if invalid, ``ConflictError`` if ``etag`` is outdated."""
    from dmls_core.models import load_spec

    content = text.encode()
    load_spec(content)
    try:
        written = store.replace(layout.incoming_file(team, name, layout.SPEC_FILE), content, etag)
    except ConflictError as error:
        raise ConflictError(
            f"the spec of {team}/{name} has changed since you opened it: open it again"
        ) from error
    audit_log.record_event(CHANGED_SPEC, layout.dag_id(team, name), user, {})
    job_index().refresh()
    return written


def _serving_settings() -> AirflowSettings:
    settings = airflow_settings()
    for field in ("mlflow_uri", "triton_http", "triton_grpc", "triton_repository"):
        if not getattr(settings, field):
            hint = "set it in the kwargs of the bundle entry"
            raise NotFoundError(ValidationIssue("this platform does not serve models", key=field, hint=hint))
    return settings
