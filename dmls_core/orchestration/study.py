"""The database over which a run's trainers share a search, from an Airflow connection."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from dmls_core.errors import Problem, SpecError
from dmls_core.orchestration.job import Job

STUDY_CONNECTION = "dmls_study"
"""Id of the connection, of type Postgres."""

STUDY_VARIABLE = "DMLS_STUDY_URL"
"""The variable by which the trainer knows the database: its address is a secret, so no argument."""


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
            Problem(
                "this platform cannot share a search among trainers",
                key="search.workers",
                found=str(job.spec.search.workers),
                expected="1",
                hint=f"or have the platform team add the Airflow connection {STUDY_CONNECTION}, a PostgreSQL "
                "database",
            )
        ) from error
    return {STUDY_VARIABLE: study_url(connection)}


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
