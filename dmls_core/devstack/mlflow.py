"""MLflow's server with a login: runs and models in PostgreSQL, artifacts in S3 through the server."""

from __future__ import annotations

import configparser
import importlib.metadata
import io
import sys
from pathlib import Path

from dmls_core.devstack.context import Context
from dmls_core.devstack.postgres import (
    database_url,
    note_schema_version,
    refuse_downgrade,
    schema_version,
)
from dmls_core.devstack.private_files import make_private_folder, write_private
from dmls_core.devstack.supervisor import Service, http_answers, run_logged

PORTS = ("mlflow",)
_UPGRADE_SECONDS = 300
USER = "admin"
_AUTH_CONFIG = "basic_auth.ini"

_CACHED_LOGIN_SECONDS = 60
"""MLflow hashes a password slowly on purpose: not at each of a client's requests."""


def mlflow_service(context: Context) -> Service:
    """Return the service, which creates the tables of an empty database, and the first user."""
    folder = make_private_folder(context.state / "mlflow")
    _write_auth_config(context, folder / _AUTH_CONFIG)
    return Service(
        name="mlflow",
        command=[
            *(sys.executable, "-P", "-m", "mlflow", "server", "--workers", "1"),
            *("--app-name", "basic-auth"),
            *("--host", "127.0.0.1", "--port", str(context.port("mlflow"))),
            *("--artifacts-destination", f"{context.root}/mlflow"),
        ],
        folder=folder,
        environment={
            "MLFLOW_BACKEND_STORE_URI": _backend(context),
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_AUTH_CONFIG_PATH": str(folder / _AUTH_CONFIG),
            "MLFLOW_AUTH_ADMIN_USERNAME": USER,
            "MLFLOW_AUTH_ADMIN_PASSWORD": context.secret("mlflow_password"),
            "MLFLOW_FLASK_SERVER_SECRET_KEY": context.secret("mlflow_secret_key"),
            # Routes that MLflow's own rules forget are closed.
            "MLFLOW_BASIC_AUTH_FAIL_CLOSED": "true",
            **context.s3_environment(),
        },
        ready=lambda _: http_answers(f"{context.url('mlflow')}/health"),
        url=context.url("mlflow"),
    )


def mlflow_login(context: Context) -> dict[str, str]:
    """Return the variables by which MLflow's clients log in."""
    return {
        "MLFLOW_TRACKING_USERNAME": USER,
        "MLFLOW_TRACKING_PASSWORD": context.secret("mlflow_password"),
    }


def _write_auth_config(context: Context, file: Path) -> None:
    """Write the configuration of MLflow's users, who are in the same database."""
    config = configparser.RawConfigParser()
    config["mlflow"] = {
        "default_permission": "NO_PERMISSIONS",
        "database_uri": _backend(context),
        "auth_cache_ttl_seconds": str(_CACHED_LOGIN_SECONDS),
    }
    text = io.StringIO()
    config.write(text)
    write_private(file, text.getvalue())


def upgrade(context: Context, environment: dict[str, str], log: Path) -> None:
    """Upgrade a schema of another MLflow version; raise ``PlatformError`` if that fails."""
    version = importlib.metadata.version("mlflow")
    noted = schema_version(context, "mlflow")
    refuse_downgrade("MLflow", noted, version)
    if noted not in ("", version):
        command = [
            sys.executable,
            "-c",
            "import os, mlflow.cli; mlflow.cli.cli(['db', 'upgrade', os.environ['URI']])",
        ]
        uri = {"URI": _backend(context)}
        run_logged(command, environment | uri, log, _UPGRADE_SECONDS, name="mlflow db upgrade")


def note_upgraded(context: Context) -> None:
    """Store the MLflow version of the schema; call it once the server responds."""
    version = importlib.metadata.version("mlflow")
    if schema_version(context, "mlflow") != version:
        note_schema_version(context, "mlflow", version)


def _backend(context: Context) -> str:
    return database_url(context, "mlflow", "psycopg2")
