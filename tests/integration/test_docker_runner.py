"""The runner ``docker`` on a real engine, which needs no GPU to create containers that request one."""

from __future__ import annotations

import hashlib
import io
import tarfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import docker
import pytest
from docker.errors import APIError
from docker.types import DeviceRequest

from dmls_core.airflow.runners.docker import gpus as docker_gpus
from dmls_core.airflow.runners.docker import runner as docker_runner
from dmls_core.airflow.runners.docker.gpus import (
    CONFLICT,
    TrainerExistsError,
    create_on_gpu,
    survey_engine,
)
from dmls_core.airflow.runners.gpu_placement import GpusBusyError, ProbedGpu
from dmls_core.airflow.runners.trainer import KEY_LABEL, ROOT_LABEL, Trainer
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import RunnerError
from dmls_core.testing.runners import PROGRAM, RunnerSuite
from tests.services.docker_engine import PYTHON_IMAGE, DockerEngine
from tests.support.caches import CacheJourney
from tests.support.gpus import GpuJourney, gpu_lines, smi_program
from tests.support.run_nodes import NodesJourney
from tests.support.suite_bucket import serve_suite_bucket, suite_connection

GIB = 1 << 30
SUITE_IMAGE = "dmls-runner-suite"
DOCKERFILE = f"""FROM {PYTHON_IMAGE}
COPY dmls /usr/local/bin/dmls
ENTRYPOINT ["dmls"]
"""


def build_image(docker_engine: DockerEngine, tag: str, dockerfile: str, programs: dict[str, str]) -> str:
    """Build an image with executable programs in its context, without a network."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, content in {"Dockerfile": dockerfile, **programs}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content.encode()), 0o755
            archive.addfile(info, io.BytesIO(content.encode()))
    context.seek(0)
    with docker.APIClient(base_url=docker_engine.host, version="auto") as client:
        output = list(client.build(fileobj=context, custom_context=True, tag=tag, decode=True))
    assert not any("error" in line for line in output), output
    return tag


@pytest.fixture(scope="module")
def suite_image(docker_engine: DockerEngine) -> str:
    """An image whose command ``dmls`` is the suite's program."""
    program = PROGRAM.replace("{python}", "/usr/bin/env python3")
    return build_image(docker_engine, SUITE_IMAGE, DOCKERFILE, {"dmls": program})


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    yield from serve_suite_bucket()


@pytest.fixture
def simulate(docker_engine: DockerEngine, suite_image: str, monkeypatch: pytest.MonkeyPatch):
    """Return a function that gives the image simulated GPUs; their leases are this test's alone."""
    # The engine may be one that trains already.
    mark = uuid.uuid4().hex[:8]
    monkeypatch.setattr(docker_gpus, "GPU_NAME_PREFIX", f"dmls-gpu-{mark}-")
    monkeypatch.setattr(docker_gpus, "GPU_LABEL", f"dmls.gpu.{mark}")

    def simulate_gpus(*gpus: tuple[int, int, int]) -> str:
        tag = f"{suite_image}:gpus-{hashlib.sha256(repr(gpus).encode()).hexdigest()[:8]}"
        dockerfile = f"FROM {suite_image}\nCOPY nvidia-smi /usr/local/bin/nvidia-smi\n"
        return build_image(docker_engine, tag, dockerfile, {"nvidia-smi": smi_program(gpu_lines(*gpus))})

    with docker.APIClient(base_url=docker_engine.host, version="auto") as client:
        probe = client.create_container(
            suite_image,
            entrypoint=["true"],
            host_config=client.create_host_config(
                network_mode="none", device_requests=[DeviceRequest(count=1, capabilities=[["gpu"]])]
            ),
        )
        try:
            client.start(probe["Id"])
        except APIError as error:
            pytest.skip(f"this engine starts no containers with GPUs: {error.explanation}")
        finally:
            client.remove_container(probe["Id"], force=True)
        yield simulate_gpus
        for found in client.containers(all=True, filters={"label": docker_gpus.GPU_LABEL}):
            client.remove_container(found["Id"], force=True)


class TestDockerRunner(CacheJourney, GpuJourney, NodesJourney, RunnerSuite):
    name = "docker"
    device_variable = "NVIDIA_VISIBLE_DEVICES"  # Docker itself sets it, for NVIDIA's hook

    @pytest.fixture
    def two_gpus(self, simulate) -> str:
        return simulate((80, 9000, 16384), (0, 300, 16384))

    @pytest.fixture
    def settings(self, s3, suite_image, docker_engine, monkeypatch, request) -> AirflowSettings:
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", suite_connection(s3))
        return AirflowSettings(
            root=f"s3://suite/{uuid.uuid4().hex}",
            runner=self.name,
            image=request.getfixturevalue("two_gpus") if "two_gpus" in request.fixturenames else suite_image,
            docker_url=docker_engine.host,
            docker_network="host",
            memory="256m",
        )

    def cache_of(self, environment: dict[str, str], settings: AirflowSettings) -> str:
        assert environment["DMLS_CACHE_FOLDER"] == "/var/cache/dmls"
        with docker.APIClient(base_url=settings.docker_url, version="auto") as client:
            (volume,) = client.volumes(filters={"name": "dmls-cache-"})["Volumes"]
            client.remove_volume(volume["Name"], force=True)
        return str(volume["Name"])

    def trainers(self, settings: AirflowSettings) -> list[str]:
        with docker.APIClient(base_url=settings.docker_url, version="auto") as client:
            labeled = {"label": f"{ROOT_LABEL}={settings.root}"}
            return [found["Id"] for found in client.containers(all=True, filters=labeled)]

    def members(self, settings) -> int:
        return len(self.trainers(settings))

    def test_trainers_and_nodes_are_locked_down_alike(self, led, settings):
        key = led.trigger.key
        with docker.APIClient(base_url=settings.docker_url, version="auto") as client:
            leader, *nodes = (
                client.inspect_container(name) for name in (key, f"{key}-node1", f"{key}-node2")
            )
        host = leader["HostConfig"]
        assert host["CapDrop"] == ["ALL"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert (host["ReadonlyRootfs"], host["Privileged"], host["Init"]) == (True, False, True)
        assert host["Memory"] > 0
        assert host["PidsLimit"] > 0
        assert leader["Config"]["User"] == "10001:10001"
        arguments = leader["Args"]
        for node in nodes:
            assert node["Args"][-2:] == ["node", arguments[arguments.index("--out") + 1]]
            assert node["Config"]["Labels"]["dmls.leader"] == key
            variables = dict(text.split("=", 1) for text in node["Config"]["Env"])
            assert variables["DMLS_NODE_TRAINERS"] == key
            assert "DMLS_STUDY_URL" not in variables
            for part in ("Image", "User"):
                assert node["Config"][part] == leader["Config"][part]
            own, its = (
                {name: value for name, value in found["HostConfig"].items() if name != "Mounts"}
                for found in (leader, node)
            )
            assert its == own
            assert [mount["Destination"] for mount in node["Mounts"]] == ["/tmp"]


@pytest.fixture
def engine(docker_engine, simulate):
    with docker.APIClient(base_url=docker_engine.host, version="auto") as client:
        yield client


IDLE = (0, 300, 16384)


def survey(engine, image, **values):
    return survey_engine(engine, AirflowSettings(root="s3://one", image=image, **values))


def create(engine, found, key=None, memory=GIB):
    """Create a trainer's container on a GPU of the survey."""
    key = key or uuid.uuid4().hex
    made = create_on_gpu(
        engine,
        engine.create_container,
        found,
        memory,
        image=PYTHON_IMAGE,
        command=["sleep", "60"],
        labels={KEY_LABEL: key},
        host_config=engine.create_host_config(network_mode="none", init=True),
        name=key,
    )
    return engine.inspect_container(made["Id"])


def held(found):
    """Return the GPU of a container, by what it asks the engine for and by its label."""
    (request,) = found["HostConfig"]["DeviceRequests"]
    assert (request["Count"], request["Capabilities"]) == (0, [["gpu"]])
    assert request["DeviceIDs"] == [found["Config"]["Labels"][docker_gpus.GPU_LABEL]]
    return int(request["DeviceIDs"][0])


def test_the_engine_s_gpus_are_probed_in_a_container_that_leaves_nothing(engine, simulate):
    before = len(engine.containers(all=True))
    found = survey(engine, simulate(IDLE, (70, 8192, 16384)), gpus=2)
    assert found.gpus[1] == ProbedGpu(1, "GPU-111", 70.0, 8 * GIB, 16 * GIB)
    assert len(engine.containers(all=True)) == before
    with pytest.raises(RunnerError, match=r"nvidia-smi failed in a container of .* with exit code 127"):
        survey(engine, SUITE_IMAGE)


def test_trainers_that_start_at_once_get_a_gpu_each(engine, simulate):
    image = simulate(IDLE, IDLE, IDLE)
    seen = survey(engine, image)

    def start(_):
        with suppress(GpusBusyError):
            return create(engine, seen)

    with ThreadPoolExecutor(6) as pool:
        found = [one for one in pool.map(start, range(6)) if one]
    assert sorted(map(held, found)) == [0, 1, 2]
    now = survey(engine, image)
    assert now.leases == {0: 1, 1: 1, 2: 1}
    assert now.reason(GIB) == "waits for a GPU: 3 of 3 in use"
    # What is given back is taken next.
    (third,) = (one for one in found if held(one) == 2)
    engine.remove_container(third["Id"])
    assert held(create(engine, survey(engine, image))) == 2
    assert not [one for one in engine.containers(all=True) if one["Labels"].get(KEY_LABEL) == ""]


def test_a_trainer_that_two_workers_start_gets_one_gpu(engine, simulate):
    seen = survey(engine, simulate(IDLE, IDLE, IDLE, IDLE))

    def start(_):
        try:
            return create(engine, seen, "dmls.a.iris.one")
        except (TrainerExistsError, APIError) as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(start, range(4)))
    found = [one for one in answers if isinstance(one, dict)]
    refused = [one for one in answers if isinstance(one, APIError)]
    assert {one.status_code for one in refused} <= {CONFLICT}
    same = engine.containers(all=True, filters={"label": f"{KEY_LABEL}=dmls.a.iris.one"})
    assert [one["Id"] for one in found] == [one["Id"] for one in same]
    assert len(found) == 1


def test_trainers_share_a_gpu_if_the_platform_allows_it(engine, simulate):
    image = simulate(IDLE)
    found = [create(engine, survey(engine, image, trainers_per_gpu=2), memory=7 * GIB) for _ in range(2)]
    assert [held(one) for one in found] == [0, 0]
    with pytest.raises(GpusBusyError, match="1 of 1 in use"):
        create(engine, survey(engine, image, trainers_per_gpu=2))
    for one in found:
        engine.remove_container(one["Id"])
    create(engine, survey(engine, image, trainers_per_gpu=2), memory=9 * GIB)
    assert survey(engine, image, trainers_per_gpu=2).free(GIB) == [], "it leases both shares"


def test_a_container_that_has_ended_holds_no_gpu(engine, simulate):
    image = simulate(IDLE)
    ended = create(engine, survey(engine, image))["Id"]
    engine.start(ended)
    engine.kill(ended)
    engine.wait(ended)
    taken = create(engine, survey(engine, image))
    assert held(taken) == 0
    assert taken["Name"] == f"/{docker_gpus.GPU_NAME_PREFIX}0"
    assert engine.inspect_container(ended)["State"]["Running"] is False  # whoever started it can still ask


def test_only_what_a_try_of_the_same_run_left_is_removed(engine, docker_engine, monkeypatch):
    settings = AirflowSettings(root="s3://one", image=PYTHON_IMAGE, docker_url=docker_engine.host)
    monkeypatch.setattr(docker_runner, "airflow_settings", lambda: settings)
    # Two teams that drop the same spec and data have the same run key.
    own = {ROOT_LABEL: "s3://one", "dmls.dag": "dmls.a.iris", "dmls.run_key": uuid.uuid4().hex}
    own |= {"dmls.worker": "0", docker_gpus.GPU_LABEL: "0"}
    others = [{"dmls.dag": "dmls.b.iris"}, {ROOT_LABEL: "s3://two"}, {"dmls.worker": "1"}]
    _, *foreign = (
        engine.create_container(PYTHON_IMAGE, ["true"], labels=own | other)["Id"] for other in ({}, *others)
    )
    operator = docker_runner.DockerTrainerOperator(task_id="search", plan={"engine": "cpu", "worker": 0})
    trainer = Trainer([], {}, own | {KEY_LABEL: "a.b.c.2"}, memory=1, engine="cpu", worker=0)
    operator._remove_earlier_tries(trainer)
    left = engine.containers(all=True, filters={"label": docker_gpus.GPU_LABEL})
    assert {found["Id"] for found in left} == set(foreign)
