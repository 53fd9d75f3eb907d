"""All models are reconciled: repairs are counted, failures collected, and deployments left alone."""

from __future__ import annotations

import json
import os
import time

import pytest

from dmls_core.errors import TrackingError
from dmls_core.monitoring.reconcile import reconcile_all
from dmls_core.serving import Deployment, Repository
from dmls_core.serving.deployment.reconcile import ABANDONED
from dmls_core.store import layout, open_store
from tests.support.model_folder import toy_model_folder
from tests.unit.serving.conftest import PlayedTriton

CHAMPIONS = {"lab.churn": 1, "lab.iris": 1}


@pytest.fixture(autouse=True)
def toy_checkpoints(monkeypatch):
    """Skip the check of checkpoints, which are no forests here, and the wait for a server's restart."""
    monkeypatch.setattr("dmls_core.serving.deployment.acceptance.check_model", lambda *_: None)
    monkeypatch.setattr("dmls_core.serving.triton.loading.RESTART_SECONDS", 0.0)


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


@pytest.fixture
def repository(tmp_path):
    return Repository(str(tmp_path / "models"))


@pytest.fixture
def server(repository, tmp_path):
    """A server that serves version 1 of two models."""
    played = PlayedTriton(repository)
    for model in CHAMPIONS:
        Deployment(repository, played, model).deploy(toy_model_folder(tmp_path / model))
    return played


@pytest.fixture
def reconciled(store, repository, server):
    def run(champions=CHAMPIONS):
        return reconcile_all(store, repository, [server], lambda: champions)

    return run


def repairs(store, job):
    info = store.head(layout.metrics_folder("lab", job) + "counts.json")
    return json.loads(store.get(info.key))["counts"]["repairs"] if info else 0


def test_nothing_is_done_if_triton_serves_the_champions(reconciled, store, server):
    loads = server.loads
    result = reconciled()
    assert (result.repaired, result.failures) == ([], [])
    assert server.loads == loads
    assert repairs(store, "churn") == 0


def test_a_lost_model_is_loaded_again_and_counted_for_its_job(reconciled, store, server):
    del server.served["lab.churn"]
    result = reconciled()
    assert result.repaired == ["lab.churn: Triton at triton:8000 served no version"]
    assert server.versions("lab.churn") == (1,)
    assert (repairs(store, "churn"), repairs(store, "iris")) == (1, 0)


def test_a_model_without_a_champion_is_left_alone(reconciled, store, server):
    server.served.clear()
    result = reconciled({"lab.churn": None})
    assert (result.repaired, result.failures, server.served) == ([], [], {})


def test_a_model_that_cannot_be_repaired_does_not_stop_the_others(reconciled, store, server):
    del server.served["lab.iris"]
    result = reconciled({"lab.churn": 9, "lab.iris": 1})
    (failure,) = result.failures
    assert failure.startswith("lab.churn: ")
    assert "the champion of lab.churn is version 9, which the repository does not hold" in failure
    assert server.versions("lab.iris") == (1,)
    assert (repairs(store, "churn"), repairs(store, "iris")) == (0, 1)


def test_a_model_that_is_being_deployed_is_left_to_its_publisher(reconciled, repository, server):
    server.served.clear()
    with repository.lock("lab.churn"):
        result = reconciled()
    assert result.failures == []
    assert server.served.keys() == {"lab.iris", "lab.iris.table"}


def test_an_abandoned_candidate_is_removed_without_counting_a_repair(
    reconciled, store, repository, server, tmp_path
):
    Deployment(repository, server, "lab.churn").stage(toy_model_folder(tmp_path / "next", checkpoint=b"b"))
    assert reconciled().repaired == [], "a new candidate is not abandoned"
    old = time.time() - ABANDONED.total_seconds() - 60
    os.utime(repository.root / "lab.churn.candidate/config.pbtxt", (old, old))
    assert reconciled().repaired == ["lab.churn: removed an abandoned candidate"]
    assert repository.staged("lab.churn") is None
    assert repairs(store, "churn") == 0


def test_an_alias_that_moves_meanwhile_decides(store, repository, server, tmp_path):
    """The champion is read again once the lock keeps publishers out."""
    Deployment(repository, server, "lab.churn").deploy(toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    answers = iter([{"lab.churn": 1}, {"lab.churn": 2}])
    result = reconcile_all(store, repository, [server], lambda: next(answers))
    assert (result.repaired, server.versions("lab.churn")) == ([], (2,))


def test_without_mlflow_the_error_is_passed_on(store, repository, server):
    def unreachable():
        raise TrackingError("MLflow does not answer")

    with pytest.raises(TrackingError, match="MLflow does not answer"):
        reconcile_all(store, repository, [server], unreachable)
