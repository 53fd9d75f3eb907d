"""Two real Triton servers over one repository: one after the other, each proven, and back where one fails."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import httpx
import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.devstack.supervisor import wait_until
from dmls_core.errors import ServingError
from dmls_core.serving import Deployment, Repository, TritonClient, choose_scaling
from dmls_core.serving.deployment.reconcile import reconcile
from dmls_core.serving.deployment.verification import table_tensors
from dmls_core.serving.triton.model_config import table_name
from tests.services.nginx_server import nginx
from tests.services.triton_server import new_triton
from tests.support.asking import Asking
from tests.support.table_endpoint import outputs_of, post, request_body
from tests.support.trained_run import trained_run, user_rows

NAME = "lab.twice"
PAGE = Path(__file__).parents[2] / "docs/how-to/deploy.md"


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    """Two servers that follow one folder."""
    folder = tmp_path_factory.mktemp("replicas")
    models = folder / "models"
    models.mkdir()
    made = []
    try:
        for name in ("first", "second"):
            (folder / name).mkdir()
            made.append(new_triton(folder / name, repository=str(models)))
            made[-1].start()
        yield Repository(str(models)), made
    finally:
        for server in made:
            server.stop()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Three runs' models."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        trained_run(folder / str(seed), seed=seed)
    return [folder / str(seed) / "model" for seed in range(3)]


class Steps:
    """Notes the order in which servers are asked, and fails a load on demand."""

    def __init__(self, servers):
        self.taken, self.fail = [], None
        for number, client in enumerate(servers):
            for kind in ("load", "infer"):
                setattr(client, kind, self._noting(number, kind, getattr(client, kind)))

    def _noting(self, number, kind, call):
        def noted(name, *args, **options):
            if not self.taken or self.taken[-1] != (number, kind, name):
                self.taken.append((number, kind, name))
            if self.fail == (number, kind, name):
                raise ServingError(f"server {number} fails on demand")
            return call(name, *args, **options)

        return noted


@pytest.fixture
def clients(replicas):
    _, servers = replicas
    with servers[0].client(timeout=60.0) as first, servers[1].client(timeout=60.0) as second:
        yield first, second


def versions_that_answer(clients, model):
    """Ask each server's table endpoint as a user does; return the version that each answers with."""
    encoder = Encoder.from_json(json.loads((model / "encoder.json").read_text()))
    found = []
    for client in clients:
        body = request_body(encoder, user_rows(3))
        status, answer = post(client.addresses["http"], table_name(NAME), body)
        assert status == 200
        found.append(set(outputs_of(answer)["version"].ravel()))
    return found


def test_each_server_loads_and_proves_itself_before_the_next(replicas, clients, models):
    repository, _ = replicas
    deployment = Deployment(repository, clients, NAME)
    deployment.deploy(models[0])
    steps = Steps(clients)
    staged = deployment.stage(models[1])
    choose_scaling(deployment, staged.version)
    deployment.promote(staged.version)
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]
    live = [step for step in steps.taken if step[2] == NAME]
    candidate = [step for step in steps.taken if step[2] == f"{NAME}.candidate" and step[1] == "infer"]
    assert candidate == [(0, "infer", f"{NAME}.candidate"), (1, "infer", f"{NAME}.candidate")]
    assert live == [(number, kind, NAME) for number in (0, 1) for kind in ("load", "infer")]
    # No one served it before both had proven the candidate.
    assert steps.taken.index(live[0]) > steps.taken.index(candidate[-1])


def test_at_the_first_that_fails_all_stay_at_the_old_version(replicas, clients, models):
    repository, _ = replicas
    steps = Steps(clients)
    steps.fail = (1, "infer", NAME)
    with pytest.raises(ServingError, match=r"server 1 fails on demand\. Version 2 is still served"):
        Deployment(repository, clients, NAME).deploy(models[2])
    steps.fail = None
    assert repository.serving(NAME) == 2
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]


def test_a_server_that_is_down_stops_the_deployment_and_gets_it_later(replicas, clients, models, monkeypatch):
    monkeypatch.setattr("dmls_core.serving.triton.loading.RESTART_SECONDS", 0.0)
    repository, servers = replicas
    deployment = Deployment(repository, clients, NAME)
    servers[1].stop(signal.SIGKILL)
    with pytest.raises(ServingError, match="does not answer"):
        deployment.deploy(models[2])
    assert versions_that_answer(clients[:1], models[1]) == [{2}]
    servers[1].start()
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]
    deployment.deploy(models[2])
    assert versions_that_answer(clients, models[2]) == [{3}, {3}]
    deployment.rollback()
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]


def asking(at, repository, version):
    """Return clients that ask the table endpoint, one over each protocol, and expect one version."""
    encoder = Encoder.from_json(repository.read(NAME, version, "encoder.json"))
    columns = table_tensors(encoder, user_rows(3))

    def ask(protocol, client):
        got = client.infer_tensors(table_name(NAME), columns, protocol=protocol).as_numpy("version")
        if set(got.ravel()) != {version}:
            raise ServingError(f"answered by {got}, not by version {version}")

    return Asking(("http", "grpc"), lambda _: TritonClient(at[8000], at[8001], timeout=60.0), ask)


def documented_nginx(clients):
    """Return the configuration of docs/how-to/deploy.md, and the servers' own addresses by those in it."""
    (config,) = re.findall(r"```nginx\n([^`]*max_fails[^`]*)```", PAGE.read_text())
    return config, {
        f"triton-{number}:{port}": client.addresses[protocol]
        for number, client in enumerate(clients)
        for protocol, port in (("http", 8000), ("grpc", 8001))
    }


def test_through_the_documented_nginx_requests_are_answered_when_a_server_is_lost(
    replicas, clients, models, tmp_path
):
    config, places = documented_nginx(clients)
    repository, servers = replicas
    version = Deployment(repository, clients, NAME).deploy(models[1]).version
    try:
        with nginx(config, places, tmp_path) as at:
            with asking(at, repository, version) as requests:
                requests.wait_more()
                assert requests.failed == []
                servers[1].stop(signal.SIGKILL)
                requests.wait_more()
            # nginx does not keep a gRPC request that it has sent on: those in flight are lost.
            assert [one for one in requests.failed if one.startswith("http") or "not by version" in one] == []
            with TritonClient(at[8000], at[8001]) as client, pytest.raises(ServingError, match="load"):
                client.load(NAME)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    finally:
        if servers[1].process is None:
            servers[1].start()


def test_scaling_out_and_in_drops_no_request(replicas, clients, models, tmp_path):
    """As an autoscaler does it: a server gets requests once it is ready, and is drained before it stops."""
    config, both = documented_nginx(clients)
    repository, servers = replicas
    version = Deployment(repository, clients, NAME).deploy(models[1]).version
    servers[1].stop(signal.SIGKILL)
    one = re.sub(r"(server triton-1:\d+ [^;]*);", r"\1 down;", config)
    try:
        with (
            nginx(one, both, tmp_path) as at,
            asking(at, repository, version) as requests,
        ):
            requests.wait_more()
            file, process = tmp_path / "nginx.conf", int((tmp_path / "pid").read_text())
            alone = file.read_text()
            servers[1].start()
            file.write_text(alone.replace(" down;", ";"))
            os.kill(process, signal.SIGHUP)
            wait_until(lambda: requests_of(clients[1]) > 20, 60)
            file.write_text(alone)
            os.kill(process, signal.SIGHUP)
            wait_until(lambda: is_idle(clients[1]), 60)
            servers[1].stop()
            requests.wait_more()
        assert requests.failed == []
    except FileNotFoundError as error:
        pytest.skip(str(error))
    finally:
        if servers[1].process is None:
            servers[1].start()


def requests_of(client):
    """Return the number of requests that a server's table endpoint answered."""
    url = f"http://{client.addresses['http']}/v2/models/{table_name(NAME)}/stats"
    found = httpx.get(url).json()["model_stats"]
    return sum(version["inference_stats"]["success"]["count"] for version in found)


def is_idle(client):
    before = requests_of(client)
    time.sleep(1)
    return requests_of(client) == before


def test_a_server_that_lost_the_model_loads_it_again(replicas, clients, models):
    repository, _ = replicas
    clients[1].unload(table_name(NAME))
    clients[1].unload(NAME)
    assert "served no version" in reconcile(Deployment(repository, clients, NAME), lambda: 2)
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]
