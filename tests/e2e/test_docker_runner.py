"""The docker runner: the demo's training really runs in a container, locked down, and dies when cancelled."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.e2e import data
from tests.e2e.test_cancel import SLOW
from tests.services.demo_platform import Demo, dmls
from tests.services.docker_engine import DockerEngine
from tests.services.platform_client import PATIENCE, PlatformClient

BUILD_AND_DEMO_SECONDS = 900


@pytest.fixture(scope="module")
def docker_demo(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run ``dmls demo`` with an engine that answers: it builds the trainer's image by itself."""
    home = tmp_path_factory.mktemp("docker") / ".dmls"
    done = dmls(home, "demo", timeout=BUILD_AND_DEMO_SECONDS, DOCKER_HOST=docker_engine.host)
    try:
        yield Demo(done.stdout + done.stderr, done.returncode, home)
    finally:
        assert dmls(home, "down", timeout=300).returncode == 0


@pytest.fixture(scope="module")
def docked(docker_demo: Demo) -> PlatformClient:
    assert docker_demo.exit_code == 0, docker_demo.output
    return PlatformClient(docker_demo.home / "platform.json")


def containers(engine: DockerEngine, label: str) -> list[str]:
    return engine.docker("ps", "--all", "--quiet", "--filter", f"label={label}").stdout.split()


@pytest.mark.timeout(BUILD_AND_DEMO_SECONDS + 120)
def test_the_demo_trained_in_a_container(docker_demo: Demo, docked: PlatformClient):
    ran = docked.run_file("demo", "iris", "runner.json")

    assert (ran["runner"], ran["exit_code"], ran["oom_killed"]) == ("docker", 0, False)
    assert ran["labels"]["dmls.dag"] == "dmls.demo.iris"
    assert ran["labels"]["dmls.task"] == "search"
    assert ran["container"][:12] in docker_demo.output
    assert "dmls.dag" in docker_demo.output


def test_no_container_is_left(docker_demo: Demo, docked: PlatformClient, docker_engine: DockerEngine):
    assert containers(docker_engine, "dmls.dag=dmls.demo.iris") == []


def test_a_container_is_locked_down_and_dies_when_its_task_is_cancelled(
    docked: PlatformClient, docker_engine: DockerEngine
):
    docked.drop("lab", "caged", SLOW, data.iris())
    docked.wait_task("lab", "caged", "search", "deferred")
    end = time.monotonic() + PATIENCE
    while not docked.status("lab", "caged")["message"].startswith("training"):
        assert time.monotonic() < end, docked.status("lab", "caged")
        time.sleep(0.5)
    (container,) = containers(docker_engine, "dmls.dag=dmls.lab.caged")
    found = json.loads(docker_engine.docker("inspect", container).stdout)[0]
    host = found["HostConfig"]

    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["ReadonlyRootfs"] is True
    assert host["Privileged"] is False
    assert host["Memory"] > 0
    assert host["PidsLimit"] > 0
    assert host["Init"] is True
    assert found["Config"]["User"] == "10001:10001"
    assert found["Config"]["Labels"]["dmls.try"] == "1"

    (run,) = docked.runs("lab", "caged")
    start = time.monotonic()
    path = f"/dags/dmls.lab.caged/dagRuns/{quote(run['dag_run_id'])}"
    docked.airflow("PATCH", path, {"state": "failed"})
    while containers(docker_engine, "dmls.dag=dmls.lab.caged"):
        assert time.monotonic() - start < 120, "the container lived on"
        time.sleep(0.2)


def test_the_image_holds_no_airflow(docker_engine: DockerEngine, docked: PlatformClient):
    script = "import importlib.util as u, sys; sys.exit(bool(u.find_spec('airflow')))"
    run = ["run", "--rm", "--network", "none", "--entrypoint", "python", "dmls-trainer:cpu", "-c", script]

    assert docker_engine.docker(*run, check=False).returncode == 0
