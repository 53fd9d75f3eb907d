"""MLflow's server: runs and models in PostgreSQL, artifacts in S3 through the server."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from dmls_core.devstack.context import Context
from dmls_core.devstack.postgres import database_url, note_schema_version, schema_version
from dmls_core.devstack.private_files import make_private_folder
from dmls_core.devstack.supervisor import Service, http_answers, run_logged

PORTS = ("mlflow",)
UPGRADE_SECONDS = 300


def mlflow_service(context: Context) -> Service:
    """Return the service, which creates the tables of an empty database."""
    return Service(
        name="mlflow",
        command=[
            *(sys.executable, "-P", "-m", "mlflow", "server", "--workers", "1"),
            *("--host", "127.0.0.1", "--port", str(context.port("mlflow"))),
            *("--artifacts-destination", f"{context.root}/mlflow"),
        ],
        folder=make_private_folder(context.state / "mlflow"),
        environment={
            "MLFLOW_BACKEND_STORE_URI": _backend(context),
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **context.s3_environment(),
        },
        ready=lambda _: http_answers(f"{context.url('mlflow')}/health"),
        url=context.url("mlflow"),
    )


def upgrade(context: Context, environment: dict[str, str], log: Path) -> None:
    """Upgrade a schema of another MLflow version; raise ``PlatformError`` if that fails."""
    version = importlib.metadata.version("mlflow")
    noted = schema_version(context, "mlflow")
    if noted not in ("", version):
        command = [
            sys.executable,
            "-c",
            "import os, mlflow.cli; mlflow.cli.cli(['db', 'upgrade', os.environ['URI']])",
        ]
        uri = {"URI": _backend(context)}
        run_logged(command, environment | uri, log, UPGRADE_SECONDS, name="mlflow db upgrade")


def note_upgraded(context: Context) -> None:
    """Store the MLflow version of the schema; call it once the server responds."""
    version = importlib.metadata.version("mlflow")
    if schema_version(context, "mlflow") != version:
        note_schema_version(context, "mlflow", version)


def _backend(context: Context) -> str:
    return database_url(context, "mlflow", "psycopg2")
