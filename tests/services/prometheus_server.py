"""A real Prometheus on loopback: Debian's package, unpacked into a folder and never installed."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dmls_core.devstack.supervisor import http_answers, wait_until
from tests.services.debian import find_program
from tests.services.seaweed import free_ports

START_SECONDS = 60


class Prometheus:
    """A server that scrapes what its configuration says."""

    def __init__(self, programs: Path, folder: Path, config: dict[str, Any]) -> None:
        self.programs, self._folder = programs, folder
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._config = folder / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "prometheus.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    str(self.programs / "prometheus"),
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                env={**os.environ, "GOMAXPROCS": "1"},
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: http_answers(f"{self.url}/-/ready"), START_SECONDS)

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(30)

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the HTTP API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def wait_scraped(self, jobs: set[str], seconds: float = 120) -> None:
        """Wait until every job's target was scraped."""
        end = time.monotonic() + seconds
        while True:
            targets = self.get("targets")["activeTargets"]
            if {target["labels"]["job"] for target in targets if target["health"] == "up"} == jobs:
                return
            assert time.monotonic() < end, targets
            time.sleep(0.2)


@pytest.fixture(scope="session")
def prometheus_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of Prometheus's programs."""
    try:
        yield find_program("prometheus", "usr/bin/prometheus", tmp_path_factory.mktemp("prometheus")).parent
    except FileNotFoundError as error:
        pytest.skip(str(error))
