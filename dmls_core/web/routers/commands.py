"""REST API of commands on a job; Airflow's audit log records each with its user."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from dmls_core.web.dependencies import Deployer, Editor, JobViewer, Remover, Submitter, airflow_api
from dmls_core.web.json_requests import Body, JsonRoute
from dmls_core.web.services import commands, open_store
from dmls_core.web.services.submissions import unmark_floats

router = APIRouter(prefix="/jobs/{team}/{name}", tags=["Commands"], route_class=JsonRoute)

_SPEC_BYTES = 512 << 10


class Done(BaseModel):
    """Result of a command."""

    message: str


class RollbackBody(Body):
    """Version to serve again."""

    version: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Version in Triton; null for the previous one."
    )


class RunBody(Body):
    """Changes for one run."""

    changes: dict[str, Any] = Field(
        default_factory=dict,
        max_length=100,
        description="`n_trials`, `seed`, `data`, `hyperparameters`, `deploy`, as in a run's configuration. "
        'An integral float is an object, as in a spec: 1.0 is `{"float": 1}`.',
    )


class PauseBody(Body):
    """Whether the job is paused."""

    paused: bool


class SpecBody(Body):
    """A changed spec."""

    toml: str = Field(max_length=_SPEC_BYTES)
    etag: str = Field(max_length=200, description="ETag of the spec that was changed.")


class SpecText(BaseModel):
    """The submitted spec."""

    toml: str
    etag: str


class ServedVersions(BaseModel):
    """Versions in Triton's model repository."""

    serving: int | None = Field(description="Version that Triton serves.")
    kept: list[int] = Field(description="Versions that a rollback can serve again.")


@router.post("/deploy", summary="Deploy the model that waits for approval")
async def deploy(caller: Deployer, request: Request) -> Done:
    """Approve the model that waits for approval; DMLS then stages it, verifies it, and serves it."""
    subject = await commands.answer_approval(airflow_api(request), caller.team, caller.name, "Approve")
    return Done(message=f"{subject} Approved: the model is served once it is verified.")


@router.post("/decline", summary="Decline the model that waits for approval")
async def decline(caller: Deployer, request: Request) -> Done:
    """Decline the model that waits for approval; the served model stays."""
    subject = await commands.answer_approval(airflow_api(request), caller.team, caller.name, "Reject")
    return Done(message=f"{subject} Declined: what is served does not change.")


@router.get("/served", summary="Show the versions that a rollback can serve")
def served(caller: JobViewer) -> ServedVersions:
    """Return the served version, and the versions that a rollback can serve again."""
    serving, verified = commands.verified_versions(caller.team, caller.name)
    return ServedVersions(serving=serving, kept=verified)


@router.post("/rollback", summary="Serve an earlier version again")
def rollback(caller: Deployer, body: RollbackBody) -> Done:
    """Serve a version that was served before, and make it the champion, in one transaction."""
    deployed = commands.roll_back(caller.team, caller.name, body.version, caller.user_name)
    before = f", instead of version {deployed.previous}" if deployed.previous else ""
    return Done(message=f"version {deployed.version} is served and champion again{before}")


@router.post("/undeploy", summary="Stop serving the model")
def undeploy(caller: Deployer) -> Done:
    """Stop serving the job's model; its versions are kept, and a rollback serves one again."""
    version = commands.undeploy(caller.team, caller.name, caller.user_name)
    return Done(message=f"version {version} is no longer served" if version else "nothing was served")


@router.post("/runs", summary="Start a run", status_code=201)
async def start_run(caller: Submitter, body: RunBody, request: Request) -> Done:
    """Start a run of the job, with changes for this run only."""
    run_id = await commands.start_run(
        airflow_api(request), caller.team, caller.name, unmark_floats(body.changes)
    )
    return Done(message=f"run {run_id} has started")


@router.post("/pause", summary="Pause or resume a job")
async def pause(caller: Editor, body: PauseBody, request: Request) -> Done:
    """Pause the job, so that Airflow starts no run or task of it, or resume it."""
    await commands.set_paused(airflow_api(request), caller.team, caller.name, paused=body.paused)
    paused = "paused: no run or task starts until you resume the job; a trainer at work goes on"
    return Done(message=paused if body.paused else "resumed")


@router.post("/retire", summary="Retire a job")
async def retire(caller: Remover, request: Request) -> Done:
    """Delete the job's spec, as in S3: no run starts any more; the history and the served model stay.

    Models that wait for approval are declined.
    """
    declined = await commands.retire(airflow_api(request), caller.team, caller.name, caller.user_name)
    waiting = "; the model that waited for approval is declined" if declined else ""
    return Done(message=f"retired: the history and the served model stay{waiting}")


@router.get("/spec", summary="Read the submitted spec")
def read_spec(caller: JobViewer) -> SpecText:
    """Return the submitted `spec.toml`, with the ETag that a change of it needs."""
    toml, etag = commands.read_spec_text(open_store(), caller.team, caller.name, _SPEC_BYTES)
    return SpecText(toml=toml, etag=etag)


@router.put("/spec", summary="Submit a changed spec", status_code=202)
def replace_spec(caller: Editor, body: SpecBody) -> Done:
    """Submit a changed spec in place of the one that was read; it becomes the job's next version."""
    commands.replace_spec(
        open_store(), caller.team, caller.name, body.toml, etag=body.etag, user=caller.user_name
    )
    return Done(message="submitted: a run starts if the spec is accepted")
