"""The PostgreSQL database that stores a shared Optuna study, from an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from dmls_core.airflow.job import Job
from dmls_core.errors import RunnerError, SpecError, ValidationIssue
from dmls_core.settings import STUDY_VARIABLE

if TYPE_CHECKING:
    from dmls_core.airflow.job import Job

STUDY_CONNECTION = "dmls_study"
"""Id of the Airflow connection, of type Postgres."""

LOCALHOST = ("localhost", "127.0.0.1", "::1")


def study_environment(job: Job) -> dict[str, str]:
    """Return the trainers' variables for a shared study; raise ``SpecError`` without a connection to it."""
    if job.spec.search.workers == 1:
        return {}
    try:
        connection = Connection.get(STUDY_CONNECTION)
    except AirflowNotFoundException as error:
        raise SpecError(
            ValidationIssue(
                "this platform has no database for a search with several workers",
                key="search.workers",
                found=str(job.spec.search.workers),
                expected="1",
                hint=f"or ask the platform team to add the Airflow connection {STUDY_CONNECTION}, a "
                "PostgreSQL database",
            )
        ) from error
    return {STUDY_VARIABLE: study_url(connection)}


def check_reachable(environment: dict[str, str], network: str) -> None:
    """Raise ``RunnerError`` if a container on ``network`` cannot reach the study, as far as its URL shows."""
    if STUDY_VARIABLE not in environment:
        return
    address = urlsplit(environment[STUDY_VARIABLE])
    if not address.hostname:
        folder = parse_qs(address.query).get("host", ["its default folder"])[0]
        raise RunnerError(
            f"the connection {STUDY_CONNECTION} uses a unix socket ({folder}), which containers cannot see: "
            "give it a host and a port"
        )
    if network != "host" and address.hostname in LOCALHOST:
        raise RunnerError(
            f"the connection {STUDY_CONNECTION} names {address.hostname}, which on the network {network!r} "
            "is the container itself: give it the host by which containers reach the database, or set "
            "docker_network to a network on which they do"
        )


def study_url(connection: Connection) -> str:
    """Return a connection as an SQLAlchemy URL for psycopg; its extra becomes query parameters."""
    options = {name: str(value) for name, value in connection.extra_dejson.items()}
    host = connection.host or ""
    if host.startswith("/"):
        # The folder of a unix socket.
        options, host = {"host": host} | options, ""
    user = quote(connection.login or "", safe="")
    password = quote(connection.password or "", safe="")
    port = f":{connection.port}" if connection.port and host else ""
    if connection.port and not host:
        options["port"] = str(connection.port)
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql+psycopg://{user}:{password}@{host}{port}/{quote(connection.schema or '')}{query}"
