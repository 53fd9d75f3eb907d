"""What can be done with a job; each with who and when in Airflow's audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from dmls_core.airflow.approval import Answer
from dmls_core.airflow.job import PARAM
from dmls_core.errors import ConflictError, NotFoundError
from dmls_core.intake import read_status
from dmls_core.web.airflow_calls import AirflowCalls, part
from dmls_core.web.backend import open_store
from dmls_core.web.index import job_index
from dmls_core.web.job import acts, audit
from dmls_core.web.job.approval import answer_approval
from dmls_core.web.security import JobCaller, job_may

router = APIRouter(prefix="/jobs/{team}/{name}", tags=["Actions"])

Deployer = Annotated[JobCaller, Depends(job_may("PUT", DagAccessEntity.HITL_DETAIL))]
Runner = Annotated[JobCaller, Depends(job_may("POST", DagAccessEntity.RUN))]
Changer = Annotated[JobCaller, Depends(job_may("PUT"))]
Remover = Annotated[JobCaller, Depends(job_may("DELETE"))]
AuditReader = Annotated[JobCaller, Depends(job_may("GET", DagAccessEntity.AUDIT_LOG))]

SPEC_BYTES = 512 << 10


class Done(BaseModel):
    """What was done."""

    message: str


class Strict(BaseModel):
    """A body that takes its own fields alone."""

    model_config = ConfigDict(extra="forbid")


class RollbackBody(Strict):
    """Where to go back to."""

    version: int | None = Field(None, ge=1, le=2**31 - 1, description="In Triton; null: the one before.")


class RunBody(Strict):
    """What is different in this run alone."""

    changes: dict[str, Any] = Field(
        default_factory=dict,
        max_length=100,
        description="`n_trials`, `seed`, `data`, `hyperparameters`, `deploy`, as in a run's configuration.",
    )


class PauseBody(Strict):
    """Whether Airflow is to start runs."""

    paused: bool


class SpecBody(Strict):
    """A changed spec."""

    toml: str = Field(max_length=SPEC_BYTES)
    etag: str = Field(max_length=200, description="Of the spec that was changed.")


class SpecText(BaseModel):
    """The spec as it was dropped."""

    toml: str
    etag: str


class Event(BaseModel):
    """Something that somebody did."""

    at: datetime | None
    event: str
    who: str | None
    run_id: str | None
    extra: str | None


class Served(BaseModel):
    """What is served, and where a rollback may go."""

    serving: int | None
    kept: list[int]


@router.post("/deploy", summary="Deploy the candidate that waits")
async def deploy(caller: Deployer, request: Request) -> Done:
    """Approve the model that waits for it; it is then loaded, verified and served."""
    return await _answer(caller, request, "Approve", "approved: it is served once it is verified")


@router.post("/decline", summary="Decline the candidate that waits")
async def decline(caller: Deployer, request: Request) -> Done:
    """Refuse the model that waits for approval; what is served stays."""
    return await _answer(caller, request, "Reject", "declined: what is served stays")


async def _answer(caller: JobCaller, request: Request, answer: Answer, outcome: str) -> Done:
    status = await run_in_threadpool(read_status, open_store(), caller.team, caller.name)
    if status is None:
        raise NotFoundError(f"there is no job {caller.team}/{caller.name}")
    if status.state != "awaiting approval":
        job = f"{caller.team}/{caller.name}"
        raise ConflictError(f"nothing of {job} waits for approval: it is {status.state}; {status.message}")
    subject = await answer_approval(AirflowCalls(request), caller.dag_id, answer)
    _look_again()
    return Done(message=f"{subject} {outcome}")


@router.get("/served", summary="Show which versions are kept")
def served(caller: Annotated[JobCaller, Depends(job_may("GET"))]) -> Served:
    """Return the served version and those that a rollback may go to."""
    serving, kept = acts.kept_versions(caller.team, caller.name)
    return Served(serving=serving, kept=list(kept))


@router.post("/rollback", summary="Serve an earlier version again")
def rollback(caller: Deployer, body: RollbackBody) -> Done:
    """Serve a version that was served before, and make it the champion, in one transaction."""
    by = f"{caller.user_name} on the DMLS page"
    done = acts.roll_back(caller.team, caller.name, body.version, by)
    audit.record(caller, "dmls_rollback", version=done.version, previous=done.previous)
    _look_again()
    return Done(message=f"version {done.version} is served and champion again (was: {done.previous})")


@router.post("/runs", summary="Run again", status_code=201)
async def run_again(caller: Runner, body: RunBody, request: Request) -> Done:
    """Start a run, as it is or with changes for it alone."""
    if body.changes:
        await run_in_threadpool(_check_changes, caller, body.changes)
    conf = {PARAM: body.changes} if body.changes else {}
    path = f"/dags/{part(caller.dag_id)}/dagRuns"
    run = await AirflowCalls(request).call("POST", path, {"logical_date": None, "conf": conf})
    _look_again()
    return Done(message=f"run {run['dag_run_id']} is started")


def _check_changes(caller: JobCaller, changes: dict[str, Any]) -> None:
    """Say at once what the run would fail with.

    Raises:
        SpecError: what is changed does not make a spec.
        NotFoundError: there is no such job.
    """
    from dmls_core.models.load import change_spec
    from dmls_core.spec import Spec
    from dmls_core.store import Registry

    registry = Registry(open_store())
    record = registry.job(caller.team, caller.name)
    if record is None:
        raise NotFoundError(f"there is no job {caller.team}/{caller.name}")
    change_spec(Spec.from_json(registry.spec(record.spec_sha256)), changes)


@router.post("/pause", summary="Pause or resume")
async def pause(caller: Changer, body: PauseBody, request: Request) -> Done:
    """Have Airflow start no more runs of the job, or start them again."""
    path = f"/dags/{part(caller.dag_id)}?update_mask=is_paused"
    await AirflowCalls(request).call("PATCH", path, {"is_paused": body.paused})
    _look_again()
    return Done(message="paused: no run starts until it is resumed" if body.paused else "resumed")


@router.post("/retire", summary="Retire the job")
def retire(caller: Remover) -> Done:
    """Take the spec away, as deleting it in S3 does: no more runs; the history and the model stay."""
    acts.retire(open_store(), caller.team, caller.name)
    audit.record(caller, "dmls_retire")
    _look_again()
    return Done(message="retired: its history stays, and what is served goes on being served")


@router.get("/spec", summary="Read the spec as it was dropped")
def read_spec(caller: Annotated[JobCaller, Depends(job_may("GET"))]) -> SpecText:
    """Return the TOML, to be changed."""
    toml, etag = acts.read_spec_text(open_store(), caller.team, caller.name, SPEC_BYTES)
    return SpecText(toml=toml, etag=etag)


@router.put("/spec", summary="Drop a changed spec", status_code=202)
def change_spec_text(caller: Changer, body: SpecBody) -> Done:
    """Drop a changed spec in the place of the one that was read; the intake admits it as a new version."""
    acts.drop_spec(open_store(), caller.team, caller.name, body.toml, body.etag)
    audit.record(caller, "dmls_respec")
    _look_again()
    return Done(message="dropped: the intake looks at it, and a run starts if it is accepted")


@router.get("/events", summary="List what people did")
def events(caller: AuditReader, session: SessionDep) -> list[Event]:
    """Return who did what with the job, and when: from Airflow's audit log."""
    return [
        Event(at=row.dttm, event=row.event, who=row.owner, run_id=row.run_id, extra=row.extra)
        for row in audit.read_events(session, caller.dag_id)
    ]


def _look_again() -> None:
    """Have the table of jobs show what was just done."""
    job_index().look(again=True)
