"""API keys for predictions, of one job or of a whole team: their records are Airflow variables.

A key is ``dmls_<id>_<secret>``. The variable ``dmls_key.<id>`` holds the secret's SHA-256, never the secret.
Trainers and S3 clients can write into the store, but not into Airflow's metadata database.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.models.variable import Variable
from pydantic import BaseModel, Field, ValidationError

from dmls_core.airflow import audit_log, database
from dmls_core.errors import NotFoundError, UserError, ValidationIssue
from dmls_core.store import layout

PREFIX = "dmls_"
"""Beginning of every key; Airflow's own tokens begin otherwise."""

_VARIABLE = "dmls_key."

SECONDS = 10.0
"""Longest time for which a process accepts a key that another process has revoked."""

CREATED, REVOKED = "dmls_create_key", "dmls_revoke_key"
"""Events in Airflow's audit log."""

_KEY = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_([0-9a-f]{{48}})")


class ApiKey(BaseModel):
    """An API key without its secret."""

    id: str = Field(description="Public part of the key, which begins with `dmls_<id>`.")
    name: str
    team: str
    job: str | None = Field(description="The job that it opens; null: all jobs of the team.")
    created: datetime
    created_by: str
    expires: datetime | None = Field(description="Null: never.")

    @property
    def scope(self) -> str:
        """The job or the team that the key opens, as ``team/job`` or ``team``."""
        return f"{self.team}/{self.job}" if self.job else self.team

    @property
    def expired(self) -> bool:
        """Whether the key's time is over."""
        return self.expires is not None and self.expires <= datetime.now(UTC)

    def opens(self, team: str, job: str) -> bool:
        """Return whether the key is for a job."""
        return self.team == team and self.job in (None, job)


class _Record(ApiKey):
    sha256: str


class ApiKeyError(UserError):
    """An API key is wrong, revoked, or expired."""


_cache: dict[str, tuple[float, _Record]] = {}
"""ID -> (end of its use, record); only of keys that were sent with the right secret."""


def create_key(
    team: str, job: str | None, name: str, user: str, *, days: int | None = None
) -> tuple[ApiKey, str]:
    """Create a key of a job, or of all jobs of a team; return it and its text, which is stored nowhere."""
    identity, secret, now = secrets.token_hex(6), secrets.token_hex(24), datetime.now(UTC)
    record = _Record(
        id=identity,
        name=name,
        team=team,
        job=job,
        created=now,
        created_by=user,
        expires=now + timedelta(days=days) if days else None,
        sha256=_sha256(secret),
    )
    description = f"API key of {record.scope}"
    with database.create_session() as session:
        Variable.set(_VARIABLE + identity, record.model_dump_json(), description, session=session)
    _log(CREATED, record, user)
    return _public(record), f"{PREFIX}{identity}_{secret}"


def list_keys(team: str, job: str | None = None) -> list[ApiKey]:
    """Return the keys of a team, newest first; with ``job``, only those that open it, the team's included."""
    keys = [
        key for key in _read(prefix=_VARIABLE) if key.team == team and (not job or key.job in (None, job))
    ]
    return [_public(key) for key in sorted(keys, key=lambda key: key.created, reverse=True)]


def revoke_key(identity: str, team: str, job: str | None, user: str) -> ApiKey:
    """Delete a key of a job, or with ``job`` ``None`` any key of the team.

    This process refuses it at once, others within ``SECONDS``.

    Raises:
        NotFoundError: the key does not exist.
    """
    key = _find(identity)
    if key is None or key.team != team or (job and key.job != job):
        raise NotFoundError(
            ValidationIssue(
                f"{team}/{job} has no API key {identity}" if job else f"{team} has no API key {identity}",
                hint="revoke a key of all jobs of a team by the team's name: dmls keys revoke TEAM KEY",
            )
        )
    with database.create_session() as session:
        Variable.delete(_VARIABLE + identity, session=session)
    _cache.pop(identity, None)
    _log(REVOKED, key, user)
    return _public(key)


def read_key(text: str) -> ApiKey:
    """Return the valid key of ``text``.

    Raises:
        ApiKeyError: it is wrong, revoked, or expired.
    """
    identity, secret = match.groups() if (match := _KEY.fullmatch(text)) else ("", "")
    until, cached = _cache.get(identity, (0.0, None))
    fresh = time.monotonic() < until
    record = cached if fresh else _find(identity) if identity else None
    if not fresh:
        _cache.pop(identity, None)
    if record is None or not hmac.compare_digest(record.sha256, _sha256(secret)):
        raise ApiKeyError("the API key is wrong or revoked")
    if record.expired:
        raise ApiKeyError(f"the API key {record.name!r} expired on {record.expires:%Y-%m-%d}")
    if not fresh:
        _cache[identity] = (time.monotonic() + SECONDS, record)
    return _public(record)


def _sha256(secret: str) -> str:
    """Return the hash of a secret of 192 random bits, which needs no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _find(identity: str) -> _Record | None:
    return next(iter(_read(key=_VARIABLE + identity)), None)


def _read(**names: str) -> list[_Record]:
    """Return the records in the variables with these names.

    A variable of an Airflow team does not count: its members could write one that names any job.
    """
    with database.create_session() as session:
        contents = database.variables(session, **names)
    records = []
    for name, content in contents.items():
        try:
            record = _Record.model_validate_json(content)
        except ValidationError:
            continue
        if name == _VARIABLE + record.id:
            records.append(record)
    return records


def _public(record: _Record) -> ApiKey:
    return ApiKey.model_validate(record.model_dump(exclude={"sha256"}))


def _log(event: str, key: ApiKey, user: str) -> None:
    dag_id = layout.dag_id(key.team, key.job) if key.job else f"{database.DAG_PREFIX}{key.team}"
    extra: dict[str, Any] = {"id": key.id, "name": key.name, "opens": key.scope}
    audit_log.record_event(event, dag_id, user, extra)
