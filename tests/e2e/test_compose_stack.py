"""The compose stack: it trains and serves, restarts, and lives on from a backup in empty volumes.

`make compose-check` runs it with the images of the Dockerfiles, `make test-all` with the environment of the
tests in place of images to build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e import data
from tests.services.compose_stack import ComposeStack, make_stand_ins, new_variables, read_services
from tests.services.docker_engine import DockerEngine, EngineMissingError
from tests.services.platform_client import PlatformClient
from tests.services.platform_home import eventually

IMAGES = os.environ.get("DMLS_COMPOSE_CHECK", "mounted")
"""``built`` by ``make compose-check``; ``mounted`` for the environment of the tests instead."""

pytestmark = pytest.mark.nightly(
    "the stack takes minutes to start; `integration/test_images.py` checks its files"
)

SPEC = data.IRIS.replace("max = 500", "max = 60").replace("n_trials = 5", "n_trials = 1")
JOB = ("lab", "iris")
ROWS = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]


@pytest.fixture(scope="module")
def folder(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that containers' users may enter."""
    folder = tmp_path_factory.mktemp("compose")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    try:
        make_stand_ins(docker_engine, folder, built=IMAGES == "built")
    except (EngineMissingError, FileNotFoundError) as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(scope="module")
def stack(docker_engine: DockerEngine, trainer_image: str, folder: Path) -> Iterator[ComposeStack]:
    variables = new_variables(docker_engine.host.removeprefix("unix://"))
    stack = ComposeStack(docker_engine, folder, "dmls-test", variables=variables)
    try:
        stack.up()
        yield stack
    finally:
        stack.down("--volumes")


@pytest.fixture(scope="module")
def answers(stack: ComposeStack) -> list[float]:
    """Answers of a model that the stack has trained and deployed."""
    client = stack.client()
    client.drop(*JOB, SPEC, data.iris())
    client.approve(*JOB)
    client.wait_status(*JOB, "deployed")
    return client.infer("lab.iris", ROWS)


def assert_it_serves(client: PlatformClient, answers: list[float]) -> None:
    assert client.infer("lab.iris", ROWS) == answers
    assert client.status(*JOB)["state"] == "deployed"
    assert client.champion("lab.iris")["version"] == "1"
    client.wait_run(*JOB, "success")


@pytest.mark.timeout(1500)
def test_a_dropped_spec_is_trained_in_a_container_and_served(stack: ComposeStack, answers: list[float]):
    client = stack.client()
    assert_it_serves(client, answers)
    ran = client.run_file(*JOB, "runner.json")
    assert (ran["runner"], ran["exit_code"]) == ("docker", 0)
    body = client.get(f"runs/lab/iris/{client.status(*JOB)['run_key']}/model/model.sig")
    assert body, "the trainer did not sign the model"
    assert "lab/iris" in stack.compose("run", "--rm", "-T", "dmls", "jobs")


@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as another user")
def test_other_users_of_the_machine_can_only_predict(stack: ComposeStack):
    at = {name.lower(): address for name, address in stack.addresses.items()}
    addresses = at | {name: f"http://{at[name]}" for name in ("s3", "mlflow", "airflow")}
    command = [sys.executable, "-m", "tests.support.other_user", json.dumps(addresses), "[]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["succeeded"] == {}
    assert len(found["refused"]) > 40
    assert "tritonserver" in found["processes"]
    secrets = {name: text for name, text in stack.variables.items() if len(text) == 64}
    assert not [name for name, text in secrets.items() if text in found["processes"]]


@pytest.mark.timeout(900)
def test_s3_starts_again_when_s3_guard_asks_for_it(stack: ComposeStack):
    assert stack.restarts("s3-guard") == 0
    before = stack.restarts("s3")
    stack.compose("exec", "-T", "s3-guard", "touch", "/s3-guard/restart")
    eventually(lambda: stack.restarts("s3") == before + 1)
    stack.wait()
    assert stack.restarts("s3") == before + 1


@pytest.mark.timeout(900)
def test_it_survives_a_restart(stack: ComposeStack, answers: list[float]):
    """As after a restart of the machine, when Docker starts what was running, in any order."""
    lasting = [name for name in stack.services if read_services()[name]["restart"] == "unless-stopped"]
    stack.compose("restart", "--timeout", "20", *lasting)
    stack.wait()
    assert_it_serves(stack.client(), answers)


@pytest.mark.timeout(1500)
def test_a_backup_is_restored_into_an_empty_stack(stack: ComposeStack, answers: list[float], folder: Path):
    stack.compose("stop", "--timeout", "20")
    stack.back_up(folder / "backup")
    stack.down("--volumes")
    restored = ComposeStack(stack.engine, folder, "dmls-restored", variables=stack.variables)
    try:
        restored.restore(folder / "backup")
        restored.up()
        assert_it_serves(restored.client(), answers)
    finally:
        restored.down("--volumes")


@pytest.mark.timeout(2400)
def test_a_model_is_placed_on_two_of_three_servers_that_one_name_stands_for(
    stack: ComposeStack, folder: Path
):
    stack.down("--volumes")
    first = {name: int(stack.variables[f"TRITON_{name}_PORT"]) for name in ("HTTP", "GRPC", "METRICS")}
    more = {f"TRITON_{name}_PORT": f"{port}-{port + 8}" for name, port in first.items()}
    more |= {"TRITON_HTTP": "copies=2,dns:triton:8000", "TRITON_GRPC": "copies=2,dns:triton:8001"}
    scaled = ComposeStack(
        stack.engine, folder, "dmls-scaled", ("docker-compose.scale.yaml",), stack.variables | more
    )
    try:
        scaled.up(tritons=3)
        client = scaled.client()
        client.drop(*JOB, SPEC, data.iris())
        client.approve(*JOB)
        client.wait_status(*JOB, "deployed")
        placed = answers_of("lab.iris", scaled)
        assert len(placed) == 2
        (answer,) = set(placed.values())
        assert predicted_on_the_page(client) == "setosa"

        scaled.up(tritons=2)
        assert len(scaled.ips("triton")) == 2
        client.airflow("POST", "/dags/dmls.repair/dagRuns", {"logical_date": None})
        eventually(lambda: list(answers_of("lab.iris", scaled).values()) == [answer, answer])
        assert predicted_on_the_page(client) == "setosa"
    finally:
        scaled.down("--volumes")


def answers_of(model: str, stack: ComposeStack) -> dict[str, tuple[float, ...]]:
    """Return the answers of the Triton servers that have a model, by their addresses."""
    rows = {"name": "input__0", "shape": [2, 4], "datatype": "FP32", "data": ROWS}
    answers = {}
    for ip in stack.ips("triton"):
        url = f"http://{ip}:8000/v2/models/{model}"
        if httpx.get(f"{url}/ready").status_code == 200:
            found = httpx.post(f"{url}/infer", json={"inputs": [rows]}).raise_for_status()
            answers[ip] = tuple(found.json()["outputs"][0]["data"])
    return answers


def predicted_on_the_page(client: PlatformClient) -> str:
    """Return what the form on the job's page predicts for a row."""
    url = f"{client.settings['airflow_url']}/dmls/api/v1/jobs/lab/iris"
    signed_in = {"Authorization": f"Bearer {client.token}"}
    names = [column["name"] for column in httpx.get(f"{url}/signature", headers=signed_in).json()["columns"]]
    row = {name: str(value) for name, value in zip(names, ROWS[0], strict=True)}
    answer = httpx.post(f"{url}/predict", headers=signed_in, json={"row": row}, timeout=60).raise_for_status()
    return str(answer.json()["prediction"])
