"""A publisher whose lease was lost gets an error, and changes nothing more."""

from __future__ import annotations

import json
import time

import pytest

from dmls_core.errors import StoreError
from dmls_core.serving import Repository
from dmls_core.serving.repository import locks
from dmls_core.serving.repository.locks import BusyError, LostError, lease
from dmls_core.serving.repository.object_store import ObjectStoreFiles
from dmls_core.store import open_store
from tests.support.model_folder import toy_model_folder

KEY = ".dmls/lab.iris/lock"
NAME = "lab.iris"


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "models"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.02)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def lost(held):
    try:
        held.check(NAME)
    except LostError:
        return True
    return False


def test_a_lease_is_renewed_and_left(store):
    with lease(store, KEY, NAME, 1.0) as held:
        first = json.loads(store.get(KEY))
        wait_for(lambda: json.loads(store.get(KEY))["until"] > first["until"])
        held.check(NAME)
        with pytest.raises(BusyError, match="another publisher"), lease(store, KEY, NAME, 0.0):
            pass
    with lease(store, KEY, NAME, 0.0) as held:
        held.check(NAME)


def test_a_publisher_whose_lease_was_taken_gets_an_error(store):
    """As when a publisher was suspended for longer than its lease."""
    with lease(store, KEY, NAME, 1.0) as held:
        other = {"schema": 1, "id": "other", "holder": "another", "until": time.time() + 60}
        store.put(KEY, json.dumps(other).encode())
        wait_for(lambda: lost(held))
        with pytest.raises(LostError, match=r"another publisher has taken it.*dmls doctor"):
            held.check(NAME)
    assert json.loads(store.get(KEY)) == other  # the other one's lease is left alone


def test_an_expired_lease_that_could_not_be_renewed_is_lost(store, monkeypatch):
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.5)

    def refuse(*_):
        raise StoreError("the store is down")

    with lease(store, KEY, NAME, 1.0) as held:
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "replace", refuse)
            wait_for(lambda: lost(held))
            with pytest.raises(LostError, match="did not answer in time"):
                held.check(NAME)
        wait_for(lambda: not lost(held))  # no other publisher took it meanwhile, and it is renewed


def test_a_renewal_whose_answer_was_lost_keeps_the_lease(store):
    with lease(store, KEY, NAME, 1.0) as held:
        content = json.loads(store.get(KEY)) | {"note": "written, and the answer lost"}
        store.put(KEY, json.dumps(content).encode())
        wait_for(lambda: "note" not in json.loads(store.get(KEY)))
        assert not lost(held)


def test_a_publisher_without_its_lease_changes_nothing(tmp_path, monkeypatch):
    # A folder's lock cannot be lost: here it is treated as S3 is.
    monkeypatch.setattr("dmls_core.serving.repository.repository.FolderFiles", ObjectStoreFiles)
    repository = Repository(str(tmp_path / "models"))
    with repository.lock(NAME):
        version = repository.add(NAME, toy_model_folder(tmp_path / "a"))
        repository.serve(NAME, version)
        repository.store.put(KEY, json.dumps({"id": "other", "holder": "x", "until": 2**40}).encode())
        wait_for(lambda: lost(repository._files._leases[NAME]))
        for step in (
            lambda: repository.serve(NAME, None),
            lambda: repository.confirm(NAME, version),
            lambda: repository.unstage(NAME),
            lambda: repository.stage(NAME, version, tmp_path / "a"),
        ):
            with pytest.raises(LostError):
                step()
    assert repository.serving(NAME) == version
