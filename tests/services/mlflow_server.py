"""A real MLflow server on loopback: SQLite, artifacts through the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services.seaweed import free_ports

START_SECONDS = 180
"""A fresh SQLite database takes half a minute of migrations."""


@pytest.fixture(scope="session")
def mlflow_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an MLflow server that lasts as long as the test session."""
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as uri:
        yield uri


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Yield the address of an MLflow server that keeps its state in ``folder``."""
    (port,) = free_ports(1)
    uri = f"http://127.0.0.1:{port}"
    command = [
        *(
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--workers",
            "1",
        ),
        *(
            "--backend-store-uri",
            f"sqlite:///{folder}/mlflow.db",
            "--artifacts-destination",
            str(folder / "files"),
        ),
    ]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    log = folder / "log.txt"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait(uri, server, log)
        yield uri
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(uri: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{uri}/health", timeout=2).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"MLflow did not start:\n{log.read_text()[-3000:]}") from None
            time.sleep(0.2)
