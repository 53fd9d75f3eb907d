"""Airflow's API server with the DMLS page, SQLite, and API keys of lab/parts.

``python -m tests.support.api_server PORT KEYS NAME...``, with Airflow's configuration in the environment:
writes a key of each name into the file ``KEYS``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dmls_core.devstack.supervisor import http_answers, wait_until
from tests.services.seaweed import free_ports

ROOT = Path(__file__).parents[2]
TEAM, JOB = "lab", "parts"


@dataclass(frozen=True)
class ApiServer:
    """A running API server, and a key of each caller."""

    url: str
    pid: int
    keys: Mapping[str, str]

    @property
    def health(self) -> str:
        return f"{self.url}/api/v2/monitor/health"

    @property
    def predictions(self) -> str:
        return f"{self.url}/dmls/api/v1/predictions/{TEAM}/{JOB}"


@contextmanager
def api_server(folder: Path, triton: Mapping[str, str], *callers: str) -> Iterator[ApiServer]:
    """Run an API server whose Triton has ``triton_http``, ``triton_grpc`` and ``triton_repository``."""
    kwargs = {"root": str(folder / "root"), "runner": "process", **triton}
    entry = {"name": "dmls", "classpath": "dmls_core.airflow.bundle.DmlsBundle", "kwargs": kwargs}
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__SECRET_KEY": os.urandom(32).hex(),
        "AIRFLOW__API_AUTH__JWT_SECRET": os.urandom(64).hex(),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([entry]),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(folder / "bundles"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    }
    keys = folder / "keys.json"
    command = [sys.executable, "-m", __name__, str(port), str(keys), *callers]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_until(lambda: server.poll() is not None or http_answers(f"{url}/api/v2/version"), 180)
        assert server.poll() is None, (folder / "log").read_text()[-3000:]
        yield ApiServer(url, server.pid, json.loads(keys.read_text()))
    finally:
        server.terminate()
        server.wait(30)


def main(port: int, keys: Path, callers: list[str]) -> None:
    """Make the database and the keys, and serve."""
    import uvicorn
    from airflow.api_fastapi.app import cached_app
    from airflow.utils.db import initdb

    from dmls_core.airflow.api_keys import create_key

    initdb()
    keys.write_text(json.dumps({name: create_key(TEAM, JOB, name, "root")[1] for name in callers}))
    uvicorn.run(cached_app("all"), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
