"""The database over which a run's trainers share a search, from an Airflow connection."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, urlencode, urlsplit

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from dmls_core.airflow.jobs.job import Job
from dmls_core.errors import RunnerError, SpecError, ValidationIssue

STUDY_CONNECTION = "dmls_study"
"""Id of the connection, of type Postgres."""

STUDY_VARIABLE = "DMLS_STUDY_URL"
"""The variable by which the trainer knows the database: its address is a secret, so no argument."""

LOCAL = ("localhost", "127.0.0.1", "::1")


def study_environment(job: Job) -> dict[str, str]:
    """Return the variables with which the job's trainers reach their study; none where there is one trainer.

    Raises:
        SpecError: there are several, and the platform has no database for them.
    """
    if job.spec.search.workers == 1:
        return {}
    try:
        connection = Connection.get(STUDY_CONNECTION)
    except AirflowNotFoundException as error:
        raise SpecError(
            ValidationIssue(
                "this platform cannot share a search among trainers",
                key="search.workers",
                found=str(job.spec.search.workers),
                expected="1",
                hint=f"or have the platform team add the Airflow connection {STUDY_CONNECTION}, a PostgreSQL "
                "database",
            )
        ) from error
    return {STUDY_VARIABLE: study_url(connection)}


def check_reach(environment: dict[str, str], network: str) -> None:
    """Make sure that a container could reach the study, as far as its address tells.

    Args:
        environment: what ``study_environment`` returned.
        network: the containers' network mode.

    Raises:
        RunnerError: the address means the container itself, or a folder that it does not see.
    """
    if STUDY_VARIABLE not in environment:
        return
    address = urlsplit(environment[STUDY_VARIABLE])
    if not address.hostname:
        folder = parse_qs(address.query).get("host", ["its default folder"])[0]
        raise RunnerError(
            f"the connection {STUDY_CONNECTION} is by a unix socket ({folder}), which no container sees: "
            "give it a host and a port"
        )
    if network != "host" and address.hostname in LOCAL:
        raise RunnerError(
            f"the connection {STUDY_CONNECTION} names {address.hostname}, which on the network {network!r} "
            "is the container itself: give it the host by which containers reach the database, or set "
            "docker_network to a network on which they do"
        )


def study_url(connection: Connection) -> str:
    """Return a connection as SQLAlchemy's address for psycopg; its extra goes along as parameters."""
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
