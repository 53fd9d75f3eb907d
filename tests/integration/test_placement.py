"""Models on two of several real Triton servers: a server joins and another leaves under load."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dmls_core.devstack.supervisor import wait_until
from dmls_core.monitoring.reconcile import reconcile_all
from dmls_core.monitoring.request_counts import RequestCounter, read_requests
from dmls_core.serving import Deployment, Repository, connect, triton_servers
from dmls_core.serving.triton.model_config import table_name
from dmls_core.serving.triton.placement import rank
from dmls_core.serving.triton.startup import load_arguments
from dmls_core.store import LocalStore
from tests.services.triton_server import new_triton
from tests.support.asking import Asking
from tests.support.table_endpoint import post
from tests.support.trained_run import trained_run, user_rows

COPIES = 2
NAMES = [f"lab.m{number}" for number in range(200)]
START = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS = {"a", "b"}, {"b", "c"}, {"a", "c"}


class Group:
    """Servers, and lists of their addresses as settings have them."""

    def __init__(self, folder, names):
        self.repository = folder / "models"
        self.repository.mkdir()
        self.servers = {}
        for name in names:
            (folder / name).mkdir()
            self.servers[name] = new_triton(folder / name, repository=str(self.repository))

    def address(self, name, protocol="grpc"):
        return self.servers[name].context.address(f"triton_{protocol}")

    def listed(self, names, protocol="grpc"):
        return ",".join([f"copies={COPIES}", *(self.address(name, protocol) for name in names)])

    def clients(self, names):
        return triton_servers(self.listed(names, "http"), self.listed(names))

    def start(self, name, names):
        """Start a server as one of a list, with the models that are placed on it."""
        server = self.servers[name]
        own = load_arguments(str(self.repository), self.address(name), self.listed(names))
        command = [word for word in server.service.command if word != "--load-model=*"]
        server.service = replace(server.service, command=[*command, *own])
        server.start()

    def placed(self, names, model):
        by_address = {self.address(name): name for name in names}
        return {by_address[address] for address in rank(by_address, model)[:COPIES]}

    def serving(self, names, model):
        with self.clients(names) as clients:
            return {name for name, client in zip(names, clients, strict=True) if client.versions(model)}


@pytest.fixture
def group(tmp_path_factory):
    made = Group(tmp_path_factory.mktemp("group"), "abcd")
    try:
        for name in "abc":
            made.start(name, "abc")
        yield made
        for server in made.servers.values():
            server.check()
    finally:
        for server in made.servers.values():
            server.stop()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    trained_run(folder)
    return folder / "model"


def asking(addresses, models):
    """Return a client for each model, with the addresses that it began with."""
    return Asking(
        models, lambda model: connect(model, grpc=addresses), lambda _, served: served.predict(user_rows(3))
    )


def names_of_models(group):
    """Return models of which the first moves to ``d``, the second is on ``a``, the third on neither."""
    names = NAMES[100:]
    moves = next(n for n in names if "d" in group.placed("abcd", n) and "a" not in group.placed("abc", n))
    leaves = next(n for n in names if group.placed("abc", n) == group.placed("abcd", n) == {"a", "b"})
    stays = next(n for n in names if group.placed("abcd", n) == {"b", "c"})
    return moves, leaves, stays


def repair(group, names, champions, tmp_path):
    with group.clients(names) as clients:
        found = reconcile_all(
            LocalStore(tmp_path / "root"), Repository(str(group.repository)), clients, lambda: champions
        )
    assert found.failures == []
    return found.repaired


def test_requests_are_counted_on_all_servers(group, model_folder, tmp_path):
    models = [next(name for name in NAMES[:100] if group.placed("abc", name) == pair) for pair in PAIRS]
    with group.clients("abc") as clients:
        for model in models:
            Deployment(Repository(str(group.repository)), clients, model).deploy(model_folder)
    counter, store = RequestCounter(), LocalStore(tmp_path)
    addresses = group.listed("abc", "http"), group.listed("abc")

    def counted():
        counter.record(store, *addresses, {})
        return sum(found.count for found in read_requests(store, START).values())

    assert counted() == 0
    with asking(group.listed("abc"), models) as requests:
        requests.wait_more()
    assert requests.failed == []
    # Triton counts a request after its answer.
    wait_until(lambda: counted() >= requests.answered.total(), 30)
    assert counted() == requests.answered.total()


def test_servers_join_and_leave_while_every_request_is_answered(group, model_folder, tmp_path):
    models = names_of_models(group)
    with ExitStack() as stack:
        clients = stack.enter_context(group.clients("abc"))
        for model in models:
            Deployment(Repository(str(group.repository)), clients, model).deploy(model_folder)
    assert {model: group.serving("abc", model) for model in models} == {
        model: group.placed("abc", model) for model in models
    }
    # So a proxy knows that it must ask another server.
    with group.clients("abc") as clients:
        (other,) = Deployment(Repository(str(group.repository)), clients, models[0]).others
    assert post(other.addresses["http"], table_name(models[0]), {"inputs": []})[0] == 404
    champions = dict.fromkeys(models, 1)
    assert repair(group, "abc", champions, tmp_path) == []

    with asking(group.listed("abc"), models) as requests:
        requests.wait_more(1)
        group.start("d", "abcd")
        assert group.serving("d", models[0]) == {"d"}, "its models are loaded before it is ready"
        (moved,) = repair(group, "abcd", champions, tmp_path)
        assert moved.startswith(f"{models[0]}: moved from Triton at ")
        requests.wait_more()
        for model in models:
            assert group.serving("abcd", model) == group.placed("abcd", model)

        loaded = repair(group, "bcd", champions, tmp_path)
        assert any(line.startswith(f"{models[1]}: ") for line in loaded)
        for model in models:
            assert group.serving("bcd", model) >= group.placed("bcd", model)
        assert group.serving("a", models[1]) == {"a"}, "it answers until it is stopped"
        group.servers["a"].stop()
        requests.wait_more()
    assert requests.failed == []
