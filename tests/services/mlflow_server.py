"""A real MLflow server on loopback: SQLite, artifacts through the server."""

from __future__ import annotations

import time

import pytest

from dmls_core.platform.service import http_answers
from tests.services.ahead import Ahead
from tests.services.seaweed import free_ports

START_SECONDS = 180
"""A fresh SQLite database takes half a minute of migrations."""


def begin(ahead: Ahead) -> None:
    """Have the server start, if tests of this session use it."""
    if "mlflow_uri" not in ahead.wanted:
        return
    folder = ahead.folder / "mlflow"
    folder.mkdir()
    (port,) = free_ports(1)
    ahead.begin(
        "mlflow",
        *("mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        *("--artifacts-destination", str(folder / "files")),
        MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
        MLFLOW_DISABLE_TELEMETRY="true",
    )
    ahead.places["mlflow"] = f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def mlflow_uri(ahead: Ahead) -> str:
    """Address of an MLflow server that lasts as long as the test session."""
    uri = ahead.places["mlflow"]
    deadline = time.monotonic() + START_SECONDS
    while not http_answers(f"{uri}/health"):
        assert ahead.runs("mlflow"), f"MLflow ended:\n{ahead.said('mlflow')}"
        assert time.monotonic() < deadline, f"MLflow did not start:\n{ahead.said('mlflow')}"
        time.sleep(0.2)
    return uri
