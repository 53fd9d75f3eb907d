"""Triton is brought back to the champion, and abandoned candidates are removed."""

from __future__ import annotations

import os
import time

import pytest

from dmls_core.errors import NotFoundError, ServingError
from dmls_core.serving import Deployment
from dmls_core.serving.deployment.reconcile import (
    ABANDONED,
    differences,
    reconcile,
    remove_abandoned_candidate,
)
from dmls_core.serving.repository.locks import BusyError
from tests.support.model_folder import toy_model_folder
from tests.unit.serving.conftest import PlayedTriton

NAME = "lab.iris"


@pytest.fixture
def two(repository, triton, tmp_path):
    """Two servers that serve version 2; version 1 is kept."""
    other = PlayedTriton(repository)
    other.addresses = {"http": "other:8000", "grpc": "other:8001"}
    servers = (triton, other)
    Deployment(repository, servers, NAME).deploy(toy_model_folder(tmp_path / "a"))
    Deployment(repository, servers, NAME).deploy(toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    return servers


def champion(version):
    return lambda: version


def served(servers):
    return [server.served.get(NAME) for server in servers]


def test_nothing_is_loaded_if_all_agree(repository, two):
    before = [server.loads for server in two]
    assert differences(Deployment(repository, two, NAME), 2) == ""
    assert reconcile(Deployment(repository, two, NAME), champion(2)) == ""
    assert [server.loads for server in two] == before


def test_a_server_that_lost_the_model_loads_it_again(repository, two):
    two[1].served.clear()
    assert (
        reconcile(Deployment(repository, two, NAME), champion(2)) == "Triton at other:8000 served no version"
    )
    assert served(two) == [2, 2]
    assert two[1].served[f"{NAME}.table"] == 1


def test_a_server_that_lost_the_table_endpoint_loads_it_again(repository, two):
    two[1].unload(f"{NAME}.table")
    found = reconcile(Deployment(repository, two, NAME), champion(2))
    assert found == "Triton at other:8000 did not serve the table endpoint"
    assert two[1].ready(f"{NAME}.table")


def test_an_alias_that_was_moved_by_hand_is_followed(repository, two):
    wrong = reconcile(Deployment(repository, two, NAME), champion(1))
    assert "Triton at triton:8000 served version 2" in wrong
    assert "version 2 was configured" in wrong
    assert served(two) == [1, 1]
    assert (repository.serving(NAME), repository.previous(NAME, 1)) == (1, 2)


def test_a_configuration_changed_by_hand_is_restored(repository, two):
    repository.serve(NAME, 1)
    assert reconcile(Deployment(repository, two, NAME), champion(2)) == "version 1 was configured"
    assert repository.serving(NAME) == 2


def test_without_a_champion_nothing_is_done(repository, two):
    two[0].served.clear()
    assert reconcile(Deployment(repository, two, NAME), champion(None)) == ""
    assert served(two) == [None, 2]


def test_a_missing_version_is_reported_and_the_served_one_stays(repository, two):
    with pytest.raises(NotFoundError, match=r"is version 7, which.*a kept version the champion: 1, 2"):
        reconcile(Deployment(repository, two, NAME), champion(7))
    assert served(two) == [2, 2]


def test_a_damaged_version_leaves_the_served_one(repository, two):
    (repository.root / NAME / "1/checkpoint.tl").write_bytes(b"broken")
    with pytest.raises(ServingError, match="damaged"):
        reconcile(Deployment(repository, two, NAME), champion(1))
    assert served(two) == [2, 2]
    assert repository.serving(NAME) == 2


def test_a_model_that_is_being_published_is_skipped(repository, two):
    two[0].served.clear()
    with repository.lock(NAME), pytest.raises(BusyError):
        reconcile(Deployment(repository, two, NAME), champion(2))
    assert served(two) == [None, 2]


def test_the_champion_is_read_under_the_lock(repository, two):
    """A publish that ends meanwhile is not undone."""

    def ask():
        with pytest.raises(BusyError), repository.lock(NAME, timeout=0.0):
            pass
        return 2

    assert reconcile(Deployment(repository, two, NAME), ask) == ""


def test_only_an_old_candidate_is_removed(repository, two, tmp_path):
    Deployment(repository, two, NAME).stage(toy_model_folder(tmp_path / "c", checkpoint=b"c"))
    assert not remove_abandoned_candidate(Deployment(repository, two, NAME))
    assert repository.staged(NAME) == 3
    old = time.time() - ABANDONED.total_seconds() - 60
    os.utime(repository.root / f"{NAME}.candidate/config.pbtxt", (old, old))
    assert remove_abandoned_candidate(Deployment(repository, two, NAME))
    assert repository.staged(NAME) is None
    assert [sorted(server.served) for server in two] == [[NAME, f"{NAME}.table"]] * 2
    assert not remove_abandoned_candidate(Deployment(repository, two, NAME))
