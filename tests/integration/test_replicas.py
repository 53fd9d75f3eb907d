"""Two real Triton servers over one repository: one after the other, each proven, and back where one fails."""

from __future__ import annotations

import json

import pytest

from dmls_core.errors import ServingError
from dmls_core.serving import Repository, deploy, rollback
from dmls_core.serving.table import table_name
from dmls_core.serving.upkeep import repair
from tests.services.triton_server import new_triton
from tests.table_endpoint import outputs_of, post, request_body
from tests.trained_run import trained_run, user_rows

NAME = "lab.twice"


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
    """Notes the order in which servers are asked, and fails a load where it is told."""

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
                raise ServingError(f"server {number} is told to fail")
            return call(name, *args, **options)

        return noted


@pytest.fixture
def clients(replicas):
    _, servers = replicas
    with servers[0].client(timeout=60.0) as first, servers[1].client(timeout=60.0) as second:
        yield first, second


def versions_that_answer(clients, model):
    """Ask each server's table endpoint as a user does; return the version that each answers with."""
    from dmls_core.data.encoder import Encoder

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
    deploy(repository, clients, NAME, models[0])
    steps = Steps(clients)
    deploy(repository, clients, NAME, models[1])
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]
    live = [step for step in steps.taken if step[2] == NAME]
    candidate = [step for step in steps.taken if step[2] == f"{NAME}.candidate" and step[1] == "infer"]
    assert candidate == [(0, "infer", f"{NAME}.candidate"), (1, "infer", f"{NAME}.candidate")]
    assert live == [(number, kind, NAME) for number in (0, 1) for kind in ("load", "infer")]
    # Nobody served it before both had proven the candidate.
    assert steps.taken.index(live[0]) > steps.taken.index(candidate[-1])


def test_at_the_first_that_fails_all_stay_at_the_old_version(replicas, clients, models):
    repository, _ = replicas
    steps = Steps(clients)
    steps.fail = (1, "infer", NAME)
    with pytest.raises(ServingError, match=r"server 1 is told to fail\. Version 2 is still served"):
        deploy(repository, clients, NAME, models[2])
    steps.fail = None
    assert repository.serving(NAME) == 2
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]


def test_a_server_that_is_down_stops_the_deployment_and_gets_it_later(replicas, clients, models):
    repository, servers = replicas
    servers[1].stop()
    with pytest.raises(ServingError, match="does not answer"):
        deploy(repository, clients, NAME, models[2])
    assert versions_that_answer(clients[:1], models[1]) == [{2}]
    servers[1].start()
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]
    deploy(repository, clients, NAME, models[2])
    assert versions_that_answer(clients, models[2]) == [{3}, {3}]
    rollback(repository, clients, NAME)
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]


def test_a_server_that_lost_the_model_is_mended(replicas, clients, models):
    repository, _ = replicas
    clients[1].unload(table_name(NAME))
    clients[1].unload(NAME)
    assert "served no version" in repair(repository, clients, NAME, lambda: 2)
    assert versions_that_answer(clients, models[1]) == [{2}, {2}]
