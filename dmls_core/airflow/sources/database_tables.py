"""Read tables and queries of databases through Airflow connections, in batches and without writing."""

from __future__ import annotations

import csv
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from dmls_core.airflow.sources.connections import check_allowed, connection_failure, reason
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.serving.predict.batch_scoring import TableRequest
from dmls_core.settings import IntakeLimits
from dmls_core.spec.data_table import PARAMETER

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Engine, Executable

_FETCHED = 5_000
"""Rows that a server-side cursor returns at a time."""

_SQLITE_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
"""What a query may do in SQLite: no ``ATTACH``, which opens other files."""

_STEPS = 10_000
"""Instructions of SQLite's virtual machine between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a database returns, read once; ``names`` are those of the columns."""

    names: list[str]
    batches: Iterator[Sequence[Sequence[Any]]]


def read_table(
    team: str, request: TableRequest, target: Path, progress: Callable[[int], None] = lambda _: None
) -> None:
    """Write the rows of a table or view as a CSV with a header, in bounded memory; missing values are empty.

    ``progress`` gets the number of rows so far.

    Raises:
        DataError: the team may not use the connection, or the table does not exist.
        PlatformError: the connection is missing or no database, or the database failed.
    """
    with (
        open_rows(team, request.connection, table=request.table) as rows,
        target.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows.names)
        read = 0
        for batch in rows.batches:
            writer.writerows(batch)
            read += len(batch)
            progress(read)


@contextmanager
def open_rows(
    team: str,
    connection: str,
    *,
    table: str | None = None,
    query: str | None = None,
    between: tuple[datetime, datetime] | None = None,
    key: str = "",
) -> Iterator[Rows]:
    """Yield the rows of a table or view, or of a query, and let nothing be written.

    A table's name is a quoted identifier in the database's dialect, never part of a statement's text.
    ``between`` are the values of the query's parameters ``:start`` and ``:end``; ``key`` precedes the names
    of keys in messages.

    Raises:
        DataError: the team may not use the connection, the table does not exist, or the query failed or took
            too long.
        PlatformError: the connection is missing or no database, or the database failed.
    """
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    check_allowed(team, connection, f"{key}connection")
    seconds = IntakeLimits.from_environment().source_seconds
    with _connect(connection) as database:
        deadline = time.monotonic() + seconds
        try:
            statement = _prepare(database, seconds, table, query, between, key)
            streaming = database.execution_options(stream_results=True, yield_per=_FETCHED)
            result = streaming.execute(statement)
            yield Rows(_names(result, key), _batches(result, deadline, seconds, key))
        except SQLAlchemyError as error:
            lost = isinstance(error, DBAPIError) and error.connection_invalidated
            if lost or (query is None and time.monotonic() < deadline):
                raise connection_failure(connection, error) from error
            if time.monotonic() >= deadline:
                raise _too_slow(seconds, key) from error
            issue = ValidationIssue(
                "the query failed",
                hint="correct the query, and upload the spec again",
                key=f"{key}query",
                found=reason(connection, error),
            )
            raise DataError(issue) from error


@contextmanager
def _connect(connection: str) -> Iterator[Connection]:
    """Yield a connection whose transactions only read, where the database can."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        engine: Engine = BaseHook.get_hook(connection).get_sqlalchemy_engine()
    except (SQLAlchemyError, AirflowException, AttributeError, ImportError, NotImplementedError) as error:
        raise connection_failure(connection, error) from error
    try:
        try:
            database = engine.connect()
        except SQLAlchemyError as error:
            raise connection_failure(connection, error) from error
        with database:
            yield database.execution_options(postgresql_readonly=True)
    finally:
        engine.dispose()


def _prepare(
    database: Connection,
    seconds: int,
    table: str | None,
    query: str | None,
    between: tuple[datetime, datetime] | None,
    key: str,
) -> Executable:
    """Return the statement to execute, after its limits are set."""
    from sqlalchemy import text

    dialect = database.dialect.name
    if dialect == "postgresql":
        # The last one: a scan that joins another one begins in the middle, so the order of rows differs.
        settings = {"statement_timeout": f"{seconds}s", "timezone": "UTC", "synchronize_seqscans": "off"}
        for name, value in settings.items():
            setting = text("SELECT set_config(:name, :value, true)")
            database.execute(setting, {"name": name, "value": value})
    statement = _of_table(database, str(table), key) if query is None else _of_query(query, dialect, between)
    if dialect == "sqlite":
        _limit_sqlite(database, seconds)
    return statement


def _of_table(database: Connection, table: str, key: str) -> Executable:
    from sqlalchemy import column, inspect, select, text
    from sqlalchemy import table as table_clause

    schema, _, name = table.rpartition(".")
    inspector = inspect(database)
    if not inspector.has_table(name, schema=schema or None):
        raise DataError(
            ValidationIssue(
                "the database has no such table",
                hint='write "table" or "schema.table"',
                key=f"{key}table",
                found=table,
            )
        )
    # The same rows in the same order have the same hash.
    unique = inspector.get_pk_constraint(name, schema=schema or None)["constrained_columns"]
    rows = select(text("*")).select_from(table_clause(name, schema=schema or None))
    return rows.order_by(*map(column, unique))


def _of_query(query: str, dialect: str, between: tuple[datetime, datetime] | None) -> Executable:
    """Return a query as one statement with bound values."""
    from sqlalchemy import text

    used = PARAMETER.findall(query)
    values = zip(("start", "end"), between or (), strict=False)
    statement = text(query.strip().removesuffix(";"))
    return statement.bindparams(**{name: _bound(moment, dialect) for name, moment in values if name in used})


def _bound(moment: datetime, dialect: str) -> datetime | str:
    """Return a moment as databases compare it: in UTC without an offset; as text in SQLite."""
    plain = moment.astimezone(UTC).replace(tzinfo=None)
    return plain.isoformat(" ", "seconds") if dialect == "sqlite" else plain


def _limit_sqlite(database: Connection, seconds: int) -> None:
    """Deny whatever is not reading, and end a statement after its time."""
    driver: Any = database.connection.driver_connection
    deadline = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    driver.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in _SQLITE_READS else sqlite3.SQLITE_DENY
    )


def _names(result: CursorResult[Any], key: str) -> list[str]:
    names = list(result.keys())
    if double := next((name for name, count in Counter(names).items() if count > 1), None):
        raise DataError(
            ValidationIssue(
                "the query has two columns of the same name",
                hint="rename one with AS",
                key=f"{key}query",
                found=double,
            )
        )
    return names


def _batches(
    result: CursorResult[Any], deadline: float, seconds: int, key: str
) -> Iterator[Sequence[Sequence[Any]]]:
    for batch in result.partitions(_FETCHED):
        yield batch
        if time.monotonic() >= deadline:
            raise _too_slow(seconds, key)


def _too_slow(seconds: int, key: str) -> DataError:
    return DataError(
        ValidationIssue(
            "the database took too long",
            hint="select less, or ask the platform team to raise DMLS_INTAKE_SOURCE_SECONDS",
            key=key.removesuffix("."),
            expected=f"at most {seconds:,} s",
        )
    )
