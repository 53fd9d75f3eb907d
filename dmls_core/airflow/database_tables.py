"""Read tables of databases through Airflow connections, for batch scoring."""

from __future__ import annotations

import csv
from pathlib import Path

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import DataError, PlatformError, ValidationIssue
from dmls_core.serving.batch_scoring import TableRequest

FETCHED = 5_000
"""Rows that a server-side cursor returns at a time."""


def read_table(team: str, request: TableRequest, target: Path) -> None:
    """Write the rows of a table or view as a CSV with a header, in bounded memory; missing values are empty.

    The table's name is a quoted identifier in the database's dialect, never part of a statement's text.

    Raises:
        DataError: the team may not use the connection, or the table does not exist.
        PlatformError: the connection is missing or no database, or the database failed.
    """
    from sqlalchemy import inspect, select, table, text
    from sqlalchemy.exc import SQLAlchemyError

    _check_team(team, request.connection)
    schema, _, name = request.table.rpartition(".")
    try:
        hook = BaseHook.get_hook(request.connection)
        engine = hook.get_sqlalchemy_engine()
        with engine.connect() as connection:
            if not inspect(connection).has_table(name, schema=schema or None):
                raise DataError(
                    ValidationIssue(
                        "the database has no such table",
                        hint='write "table" or "schema.table"',
                        key="table",
                        found=request.table,
                    )
                )
            streaming = connection.execution_options(stream_results=True, yield_per=FETCHED)
            rows = streaming.execute(select(text("*")).select_from(table(name, schema=schema or None)))
            with target.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(rows.keys())
                writer.writerows(rows)
    except (SQLAlchemyError, AirflowException, AttributeError, ImportError, NotImplementedError) as error:
        reason = str(getattr(error, "orig", None) or error).split("\n", 1)[0][:300]
        raise PlatformError(f"the Airflow connection {request.connection}: {reason}") from error


def _check_team(team: str, connection: str) -> None:
    """Raise ``DataError`` unless the platform lets the team use the connection, whether it exists or not."""
    if not {"*", team} & set(airflow_settings().connections.get(connection, ())):
        raise DataError(
            ValidationIssue(
                f"the team {team} may not use this connection",
                hint="ask the platform team to add it to `connections` in the bundle entry",
                key="connection",
                found=connection,
            )
        )
