"""Check of the database over which trainers share a search."""

from __future__ import annotations

import socket
from typing import Any

from dmls_core.devstack.airflow import STUDY_CONNECTION
from dmls_core.devstack.airflow_rest import AirflowRest
from dmls_core.devstack.context import Context
from dmls_core.devstack.doctor.check import Check
from dmls_core.devstack.postgres import STUDY

NAME = f"connection {STUDY_CONNECTION}"
SECONDS = 5
PORT = 5432
"""PostgreSQL's own, where a connection names none."""

ADD = (
    f"airflow connections add {STUDY_CONNECTION} --conn-type postgres --conn-host HOST --conn-port 5432 "
    "--conn-login USER --conn-password PASSWORD --conn-schema DATABASE"
)


def check_own_study(context: Context) -> Check:
    """Check that the embedded platform's database takes Optuna's tables."""
    import psycopg

    where = f"PostgreSQL at {context.address('postgres')}"
    host, _, port = context.address("postgres").rpartition(":")
    password = context.secret(f"{STUDY}_db_password")
    try:
        with psycopg.connect(
            host=host, port=port, user=STUDY, password=password, dbname=STUDY, connect_timeout=SECONDS
        ) as connection:
            row = connection.execute("SELECT has_schema_privilege('public', 'CREATE')").fetchone()
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        hint = "`dmls up` makes it; see logs/postgres.log"
        return Check(NAME, "broken", f"{where} refuses {STUDY}: {reason}", hint)
    if row != (True,):
        hint = f"GRANT CREATE ON SCHEMA public TO {STUDY}"
        return Check(NAME, "broken", f"{where}: {STUDY} may create no tables", hint)
    return Check(NAME, "ok", f"{where}: trainers may share a search")


def check_study_connection(rest: AirflowRest) -> Check:
    """Check that Airflow knows the database, and that something listens there."""
    found: dict[str, Any] | None = rest.get(f"/api/v2/connections/{STUDY_CONNECTION}")
    if found is None:
        return Check(
            NAME,
            "missing",
            "Airflow shows none (it does not show those from variables or secrets backends): specs with "
            "[search] workers above 1 are refused",
            ADD,
        )
    if found.get("conn_type") != "postgres":
        return Check(NAME, "broken", f"it is of type {found.get('conn_type')!r}", f"make it Postgres: {ADD}")
    host, port = str(found.get("host") or ""), int(found.get("port") or PORT)
    if not host or host.startswith("/"):
        message = "it names a folder of sockets" if host else "it names no host"
        return Check(
            NAME,
            "missing",
            f"{message}: trainers in containers cannot reach that",
            "set its host to an address",
        )
    try:
        socket.create_connection((host, port), SECONDS).close()
    except OSError as error:
        return Check(
            NAME,
            "broken",
            f"nothing answers at {host}:{port} from here: {error}",
            "check its host and port, and that trainers reach them: in a container, localhost is itself",
        )
    return Check(NAME, "ok", f"{host}:{port} answers")
