"""The runner ``docker`` on a real engine, which needs no GPU to create containers that request one."""

from __future__ import annotations

import io
import json
import tarfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import boto3
import docker
import pytest
from docker.errors import APIError
from moto.server import ThreadedMotoServer

from dmls_core.airflow.runners import docker as docker_runner
from dmls_core.airflow.runners.docker import create_on_gpu, least_used
from dmls_core.airflow.runners.trainer import ROOT_LABEL
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.testing.runners import PROGRAM, RunnerSuite
from tests.services.docker_engine import PYTHON_IMAGE, DockerEngine

SUITE_IMAGE = "dmls-runner-suite"
DOCKERFILE = f"""FROM {PYTHON_IMAGE}
COPY dmls /usr/local/bin/dmls
ENTRYPOINT ["dmls"]
"""


@pytest.fixture(scope="module")
def suite_image(docker_engine: DockerEngine) -> str:
    """An image whose command ``dmls`` is the suite's program."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, content in {
            "Dockerfile": DOCKERFILE,
            "dmls": PROGRAM.replace("{python}", "/usr/bin/env python3"),
        }.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content.encode()), 0o755
            archive.addfile(info, io.BytesIO(content.encode()))
    context.seek(0)
    with docker.APIClient(base_url=docker_engine.host, version="auto") as client:
        output = list(client.build(fileobj=context, custom_context=True, tag=SUITE_IMAGE, decode=True))
    assert not any("error" in line for line in output), output
    return SUITE_IMAGE


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """An S3 service with the bucket ``suite``, which asks no one for credentials."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "key", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="suite")
    yield url
    server.stop()


class TestDockerRunner(RunnerSuite):
    name = "docker"

    @pytest.fixture
    def settings(self, s3, suite_image, docker_engine, monkeypatch) -> AirflowSettings:
        connection = {"conn_type": "aws", "login": "key", "password": "key", "extra": {"endpoint_url": s3}}
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
        return AirflowSettings(
            root=f"s3://suite/{uuid.uuid4().hex}",
            runner=self.name,
            image=suite_image,
            docker_url=docker_engine.host,
            docker_network="host",
            memory="256m",
        )

    def trainers(self, settings: AirflowSettings) -> list[str]:
        with docker.APIClient(base_url=settings.docker_url, version="auto") as client:
            labeled = {"label": f"{ROOT_LABEL}={settings.root}"}
            return [found["Id"] for found in client.containers(all=True, filters=labeled)]


@pytest.fixture
def engine(docker_engine, monkeypatch):
    if docker_engine.docker("image", "inspect", PYTHON_IMAGE, check=False).returncode:
        docker_engine.docker("pull", PYTHON_IMAGE)
    # The engine may be one that trains already.
    mark = uuid.uuid4().hex[:8]
    monkeypatch.setattr(docker_runner, "GPU_NAME_PREFIX", f"dmls-gpu-{mark}-")
    monkeypatch.setattr(docker_runner, "GPU_LABEL", f"dmls.gpu.{mark}")
    with docker.APIClient(base_url=docker_engine.host, version="auto") as client:
        yield client
        for found in client.containers(all=True, filters={"label": docker_runner.GPU_LABEL}):
            client.remove_container(found["Id"], force=True)


def create(engine, gpus):
    made = create_on_gpu(
        engine,
        engine.create_container,
        gpus,
        image=PYTHON_IMAGE,
        command=["true"],
        labels={"dmls.run": "one"},
        host_config=engine.create_host_config(network_mode="none"),
        name=None,
    )
    return engine.inspect_container(made["Id"])


def held(found):
    """Return the GPU of a container, by what it asks the engine for and by its label."""
    (request,) = found["HostConfig"]["DeviceRequests"]
    assert (request["Count"], request["Capabilities"]) == (0, [["gpu"]])
    assert found["Config"]["Labels"]["dmls.run"] == "one"
    assert request["DeviceIDs"] == [found["Config"]["Labels"][docker_runner.GPU_LABEL]]
    return int(request["DeviceIDs"][0])


def test_trainers_that_start_at_once_get_a_gpu_each(engine):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: create(engine, 4), range(4)))
    assert sorted(map(held, found)) == [0, 1, 2, 3]
    # More than there are GPUs share them.
    assert [held(create(engine, 4)) for _ in range(2)] == [0, 1]
    # What is given back is taken next.
    (third,) = (one for one in found if held(one) == 2)
    engine.remove_container(third["Id"])
    assert held(create(engine, 4)) == 2


def test_a_container_that_has_ended_holds_no_gpu(engine):
    name = f"{docker_runner.GPU_NAME_PREFIX}0"
    ended = engine.create_container(
        PYTHON_IMAGE,
        ["true"],
        name=name,
        labels={docker_runner.GPU_LABEL: "0"},
        host_config=engine.create_host_config(),
    )["Id"]
    assert held(create(engine, 2)) == 1  # it has not begun yet
    engine.start(ended)
    engine.wait(ended)
    taken = create(engine, 2)
    assert held(taken) == 0
    assert taken["Name"] == f"/{name}"
    assert engine.inspect_container(ended)["State"]["ExitCode"] == 0  # whoever started it can still ask


@pytest.mark.parametrize(("gpus", "asked"), [(2, {"DeviceIDs": ["0"]}), (0, {"Count": 1})])
def test_the_operator_asks_for_one_gpu(engine, docker_engine, gpus, asked, monkeypatch):
    settings = AirflowSettings(
        root="s3://one", image=PYTHON_IMAGE, docker_url=docker_engine.host, docker_network="none"
    )
    monkeypatch.setattr(docker_runner, "airflow_settings", lambda: settings)
    operator = docker_runner.DockerTrainerOperator(task_id="search", plan={"engine": "gpu", "worker": 0})
    operator.labels, operator.command = {docker_runner.GPU_LABEL: ""}, ["true"]
    operator._request_gpu(gpus)
    with suppress(APIError):  # the engine cannot start it without NVIDIA's toolkit
        operator._run_image()
    found = engine.inspect_container(operator.container["Id"])
    (request,) = found["HostConfig"]["DeviceRequests"]
    assert {key: request[key] for key in asked} == asked


def test_only_what_a_try_of_the_same_run_left_is_removed(engine, docker_engine, monkeypatch):
    settings = AirflowSettings(root="s3://one", image=PYTHON_IMAGE, docker_url=docker_engine.host)
    monkeypatch.setattr(docker_runner, "airflow_settings", lambda: settings)
    # Two teams that drop the same spec and data have the same run key.
    own = {ROOT_LABEL: "s3://one", "dmls.dag": "dmls.a.iris", "dmls.run_key": uuid.uuid4().hex}
    own |= {"dmls.worker": "0", docker_runner.GPU_LABEL: ""}
    others = [{"dmls.dag": "dmls.b.iris"}, {ROOT_LABEL: "s3://two"}, {"dmls.worker": "1"}]
    _, *foreign = (
        engine.create_container(PYTHON_IMAGE, ["true"], labels=own | other)["Id"] for other in ({}, *others)
    )
    operator = docker_runner.DockerTrainerOperator(task_id="search", plan={"engine": "cpu", "worker": 0})
    operator._remove_earlier_tries(own)
    left = engine.containers(all=True, filters={"label": docker_runner.GPU_LABEL})
    assert {found["Id"] for found in left} == set(foreign)


@pytest.mark.parametrize(
    ("held", "chosen"),
    [([], 0), (["0"], 1), (["1", "0", "2"], 0), (["0", "0", "1", "2", "2"], 1), (["7"], 0)],
)
def test_the_gpu_that_the_fewest_hold_is_shared(held, chosen):
    assert least_used(3, held) == chosen
