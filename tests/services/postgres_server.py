"""A real PostgreSQL server, defined as the embedded platform defines it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dmls_core.devstack.context import Context, ensure_runtime_folder, load_identity
from dmls_core.devstack.platform import choose_ports
from dmls_core.devstack.postgres import (
    PORTS,
    database_url,
    initialize,
    make_databases,
    postgres_service,
    superuser,
)


class PostgresServer:
    """A running server with the platform's databases."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def study_url(self) -> str:
        """Address of the database that trainers share studies over."""
        return database_url(self.context, "optuna", "psycopg")

    def empty(self, database: str = "optuna") -> None:
        """Make a database anew, by default that of studies."""
        with superuser(self.context) as connection:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
        make_databases(self.context)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Return what a query in the study database answers."""
        with psycopg.connect(self.study_url.replace("+psycopg", "")) as connection:
            return connection.execute(query).fetchall()  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Start one server for the session."""
    state = tmp_path_factory.mktemp("postgres")
    identity = load_identity(state / "identity.json")
    ensure_runtime_folder(identity)
    identity.ports = choose_ports(list(PORTS), {}, {}, [])
    context = Context(state, identity)
    log = state / "postgres.log"
    initialize(context, dict(os.environ), log)
    service = postgres_service(context)
    with log.open("ab") as stream:
        process = subprocess.Popen(
            service.command, cwd=service.folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
    try:
        end = time.monotonic() + 60
        while not service.ready(0.0):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        make_databases(context)
        yield PostgresServer(context)
    finally:
        process.send_signal(2)
        process.wait(timeout=60)
        for path in sorted(Path(identity.runtime).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        Path(identity.runtime).rmdir()
