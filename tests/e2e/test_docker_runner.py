"""The docker runner: the demo's training really runs in a container."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.demo_platform import Demo, dmls
from tests.services.docker_engine import DockerEngine
from tests.services.platform_client import PlatformClient

BUILD_AND_DEMO_SECONDS = 900

pytestmark = pytest.mark.nightly(
    "a platform of its own; `integration/test_docker_runner.py` proves the runner, `test_images.py` the image"
)


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
def test_the_demo_trained_in_a_container(
    docker_demo: Demo, docked: PlatformClient, docker_engine: DockerEngine
):
    ran = docked.run_file("demo", "iris", "runner.json")

    assert (ran["runner"], ran["exit_code"], ran["oom_killed"]) == ("docker", 0, False)
    assert ran["labels"]["dmls.dag"] == "dmls.demo.iris"
    assert ran["labels"]["dmls.task"] == "search"
    assert ran["container"][:12] in docker_demo.output
    assert "dmls.dag" in docker_demo.output
    assert containers(docker_engine, "dmls.dag=dmls.demo.iris") == []
