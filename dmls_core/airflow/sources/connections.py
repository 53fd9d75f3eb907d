"""Airflow connections to data: which team may use which, and their failures without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import DataError, PlatformError, ValidationIssue

_SECRET = re.compile(r"password|secret|token|key|credential|private", re.IGNORECASE)
"""Names of extra fields whose values no message contains."""

_PASSWORD = re.compile(r"[\w+.-]+://[^/@]*?:([^/@]*)@")
"""An address with a password."""


def check_allowed(team: str, connection: str, key: str = "connection") -> None:
    """Raise ``DataError`` unless the platform lets the team use the connection, whether it exists or not.

    ``key`` is the one that names the connection in the user's file.
    """
    if not {"*", team} & set(airflow_settings().connections.get(connection, ())):
        raise DataError(
            ValidationIssue(
                f"the team {team} may not use this connection",
                hint="ask the platform team to add it to `connections` in the bundle entry",
                key=key,
                found=connection,
            )
        )


def connection_failure(connection: str, error: BaseException) -> PlatformError:
    """Return the error of a connection that does not work."""
    return PlatformError(f"the Airflow connection {connection}: {reason(connection, error)}")


def reason(connection: str, error: BaseException) -> str:
    """Return the first line of an error's message, without the secrets of the connection."""
    text = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
    return without_secrets(connection, text).split("\n", 1)[0][:300]


def without_secrets(connection: str, text: str, options: Mapping[str, str] | None = None) -> str:
    """Return a text without the secrets of a connection, and of options that were made of it."""
    for secret in sorted(_secrets(connection) | _private(options or {}), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(connection: str) -> set[str]:
    try:
        details = BaseHook.get_connection(connection)
    except (AirflowException, ValueError):
        return set()
    return _private(details.extra_dejson) | ({details.password} if details.password else set())


def _private(options: Mapping[str, Any]) -> set[str]:
    """Return the secret values of options, and the passwords in their addresses."""
    texts = {name: value for name, value in options.items() if isinstance(value, str)}
    secrets = {value for name, value in texts.items() if _SECRET.search(name)}
    # pyiceberg's credential is a name, a colon and a secret, which a catalog may repeat alone.
    secrets |= {value.partition(":")[2] for name, value in texts.items() if name == "credential"}
    secrets |= {match[1] for value in texts.values() if (match := _PASSWORD.match(value))}
    return secrets - {""}
