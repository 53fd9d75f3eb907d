"""Containers whose task is gone are removed from a real engine, and no others."""

from __future__ import annotations

import pytest

from dmls_core.airflow.monitor import upkeep
from dmls_core.airflow.settings import AirflowSettings
from tests.services.docker_engine import PYTHON_IMAGE, DockerEngine

ROOT = "s3://reaped"


@pytest.fixture
def settings(docker_engine: DockerEngine) -> AirflowSettings:
    return AirflowSettings(root=ROOT, docker_url=docker_engine.host)


def start(engine: DockerEngine, run: str, root: str = ROOT) -> str:
    labels = {"dmls.root": root, "dmls.dag": "dmls.lab.iris", "dmls.run": run}
    options = [f"--label={key}={value}" for key, value in labels.items()]
    command = ["python3", "-c", "import time; time.sleep(600)"]
    return engine.docker("run", "--detach", *options, PYTHON_IMAGE, *command).stdout.strip()


def test_containers_whose_run_is_over_are_removed(docker_engine, settings, monkeypatch):
    orphan, alive = start(docker_engine, "over"), start(docker_engine, "at work")
    other = start(docker_engine, "over", root="s3://another")
    try:
        assert upkeep.reap_containers(settings, lambda *_: False) == []  # all are young
        monkeypatch.setattr(upkeep, "YOUNG_SECONDS", -60.0)
        assert upkeep.reap_containers(settings, lambda _, run: run == "at work") == [orphan[:12]]
        left = docker_engine.docker("ps", "--quiet", "--no-trunc").stdout.split()
        assert alive in left
        assert other in left
        assert orphan not in left
    finally:
        docker_engine.docker("rm", "--force", orphan, alive, other, check=False)
