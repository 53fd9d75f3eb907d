"""REST API of API keys for predictions, of one job and of a whole team."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from dmls_core.airflow import api_keys
from dmls_core.airflow.api_keys import ApiKey
from dmls_core.errors import NotFoundError
from dmls_core.store import Registry
from dmls_core.web.dependencies import Editor, TeamEditor
from dmls_core.web.json_requests import Body, JsonRoute
from dmls_core.web.services import open_store

router = APIRouter(tags=["API keys"], route_class=JsonRoute)

_MAX_DAYS = 3650

KeyId = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="ID of the key.")]


class KeyBody(Body):
    """A key to create."""

    model_config = ConfigDict(str_strip_whitespace=True)

    name: str = Field(
        min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$", description="Who or what uses the key."
    )
    days: int | None = Field(None, ge=1, le=_MAX_DAYS, description="Days until it expires; null: never.")


class NewKey(ApiKey):
    """A key that was created just now."""

    key: str = Field(description="The key itself; it cannot be shown again.")


@router.get("/jobs/{team}/{name}/keys", summary="List the API keys that open a job")
def list_job_keys(caller: Editor) -> list[ApiKey]:
    """Return the keys of the job and of its whole team, newest first."""
    return api_keys.list_keys(caller.team, caller.name)


@router.post("/jobs/{team}/{name}/keys", summary="Create an API key of a job", status_code=201)
def create_job_key(caller: Editor, body: KeyBody) -> NewKey:
    """Create a key that may only predict with this job's model. The response alone has the key itself."""
    if Registry(open_store()).job(caller.team, caller.name) is None:
        raise NotFoundError(f"there is no job {caller.team}/{caller.name}")
    return _create(caller.team, caller.name, body, caller.user_name)


@router.delete("/jobs/{team}/{name}/keys/{key_id}", summary="Revoke an API key of a job")
def revoke_job_key(caller: Editor, key_id: KeyId) -> ApiKey:
    """Delete a key of the job; within 10 seconds, no request is accepted with it."""
    return api_keys.revoke_key(key_id, caller.team, caller.name, caller.user_name)


@router.get("/teams/{team}/keys", summary="List the API keys of a team")
def list_team_keys(caller: TeamEditor) -> list[ApiKey]:
    """Return all keys of the team and of its jobs, newest first."""
    return api_keys.list_keys(caller.team)


@router.post("/teams/{team}/keys", summary="Create an API key of a team", status_code=201)
def create_team_key(caller: TeamEditor, body: KeyBody) -> NewKey:
    """Create a key that may only predict, with the models of all jobs of the team, those to come included."""
    return _create(caller.team, None, body, caller.user_name)


@router.delete("/teams/{team}/keys/{key_id}", summary="Revoke an API key of a team")
def revoke_team_key(caller: TeamEditor, key_id: KeyId) -> ApiKey:
    """Delete a key of the team or of one of its jobs; within 10 seconds, no request is accepted with it."""
    return api_keys.revoke_key(key_id, caller.team, None, caller.user_name)


def _create(team: str, job: str | None, body: KeyBody, user: str) -> NewKey:
    key, text = api_keys.create_key(team, job, body.name, user, days=body.days)
    return NewKey(**key.model_dump(), key=text)
