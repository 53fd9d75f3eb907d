"""A change that a killed publisher left behind is finished or undone, and the records say what is served."""

from __future__ import annotations

import pytest

from dmls_core.errors import ServingError, TrackingError
from dmls_core.serving.deployment.reconcile import reconcile
from dmls_core.serving.repository.intents import INTENTS, Intent, models_in, read_intent, write_intent
from tests.support.model_folder import toy_model_folder

NAME = "lab.iris"


class Killed(BaseException):
    """Ends the publisher at once, as a signal does: no error is handled."""


def killed(*_):
    raise Killed


@pytest.fixture
def two_versions(deployment, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    deployment.deploy(toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    return deployment


def test_a_finished_change_leaves_no_record(two_versions, repository):
    two_versions.rollback(1)
    two_versions.take_down()
    assert models_in(repository.store.list(INTENTS)) == set()


def test_a_change_whose_champion_did_not_move_is_undone(two_versions, repository, triton):
    with pytest.raises(Killed):
        two_versions.rollback(1, finish=killed)
    assert read_intent(repository.store, NAME) == Intent(1, 2)
    assert models_in(repository.store.list(INTENTS)) == {NAME}
    assert triton.versions(NAME) == (1,)
    assert "served version 1" in reconcile(two_versions, lambda: 2)
    assert triton.versions(NAME) == (2,)
    assert read_intent(repository.store, NAME) is None
    assert repository.verified(NAME)[-1] == 2


def test_a_change_whose_champion_moved_is_finished(two_versions, repository, triton, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(repository, "confirm", killed)
        with pytest.raises(Killed):
            two_versions.rollback(1)
    assert repository.verified(NAME) == (1, 2)
    assert reconcile(two_versions, lambda: 1) == "", "Triton serves it already"
    assert repository.verified(NAME) == (2, 1)
    assert read_intent(repository.store, NAME) is None
    assert triton.versions(NAME) == (1,)


def test_a_first_deployment_without_a_champion_is_undone(deployment, repository, triton, tmp_path):
    with pytest.raises(Killed):
        deployment.deploy(toy_model_folder(tmp_path / "a"), finish=killed)
    assert triton.versions(NAME) == (1,)
    assert reconcile(deployment, lambda: None) == "version 1 was served without a champion"
    assert triton.versions(NAME) == ()
    assert repository.serving(NAME) is None
    assert read_intent(repository.store, NAME) is None
    assert deployment.promote(1).version == 1, "its retry finishes it"


def test_stopping_is_finished_once_the_champion_is_gone_and_undone_before(two_versions, repository, triton):
    with pytest.raises(Killed):
        two_versions.take_down(killed)
    assert reconcile(two_versions, lambda: 2) == ""
    assert triton.versions(NAME) == (2,)
    assert read_intent(repository.store, NAME) is None
    with pytest.raises(Killed):
        two_versions.take_down(killed)
    assert reconcile(two_versions, lambda: None) == "version 2 was served without a champion"
    assert triton.versions(NAME) == ()


def test_a_champion_that_may_have_moved_unseen_is_looked_at_again(two_versions, repository, triton):
    def lost(*_):
        raise TrackingError("MLflow does not answer")

    with pytest.raises(ServingError, match="MLflow does not answer"):
        two_versions.rollback(1, finish=lost)
    assert triton.versions(NAME) == (2,)
    assert "served version 2" in reconcile(two_versions, lambda: 1)
    assert triton.versions(NAME) == (1,)


def test_without_an_interruption_a_model_without_a_champion_is_left_alone(two_versions, triton):
    assert reconcile(two_versions, lambda: None) == ""
    assert triton.versions(NAME) == (2,)


def test_a_damaged_record_says_so(repository):
    write_intent(repository.store, NAME, Intent(1, None))
    repository.store.put(f"{INTENTS}{NAME}.json", b"{")
    with pytest.raises(ServingError, match=r"lab\.iris\.json is damaged.*delete it"):
        read_intent(repository.store, NAME)
