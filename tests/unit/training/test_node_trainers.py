"""How nodes that are trainers find the leader of their attempt, and what they leave in the store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmls_core.errors import PlatformError
from dmls_core.store import Store, open_store
from dmls_core.training import node_trainers
from dmls_core.training.node_trainers import (
    ClusterAddress,
    erase_cluster,
    own_address,
    read_cluster,
    run_node,
    write_cluster,
)

LEADER = ClusterAddress("dmls.shop.sales.1.2.3", "tls://10.0.0.7:4000", "certificate", "private-key")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def test_a_node_finds_the_leader_of_its_attempt(store: Store):
    assert read_cluster(store, LEADER.attempt) is None
    write_cluster(store, LEADER)
    assert read_cluster(store, LEADER.attempt) == LEADER
    assert "private-key" not in repr(LEADER)


def test_a_node_does_not_join_the_leader_of_another_attempt(store: Store):
    write_cluster(store, LEADER)
    assert read_cluster(store, "dmls.shop.sales.1.2.4") is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"attempt": "dmls.shop.sales.1.2.3"}'])
def test_a_damaged_address_is_none(store: Store, content: bytes):
    store.put("cluster.json", content)
    assert read_cluster(store, LEADER.attempt) is None


def test_nothing_is_left_of_the_key(store: Store, tmp_path: Path):
    write_cluster(store, LEADER)
    erase_cluster(store)
    erase_cluster(store)
    assert not any("private-key" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("attempt", [None, "dmls.shop.sales.1.2.2"], ids=["absent", "stale"])
def test_a_node_without_a_leader_gives_up(attempt, store: Store, monkeypatch: pytest.MonkeyPatch):
    if attempt:
        store.put("cluster.json", json.dumps({"attempt": attempt, "address": "a"}).encode())
    monkeypatch.setenv("DMLS_NODE_TRAINERS", LEADER.attempt)
    monkeypatch.setattr(node_trainers, "LEADER_SECONDS", 0.05)
    monkeypatch.setattr(node_trainers, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(node_trainers.signal, "signal", lambda *_: None)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    with pytest.raises(PlatformError, match=f"no trainer leads the attempt {LEADER.attempt}"):
        run_node(store.url)


def test_a_node_that_no_runner_started_is_refused(store: Store):
    with pytest.raises(PlatformError, match="DMLS_NODE_TRAINERS, which the runner sets"):
        run_node(store.url)


def test_the_address_is_one_that_others_can_reach(monkeypatch: pytest.MonkeyPatch):
    names = iter([["127.0.1.1", "172.17.0.3"], ["127.0.0.1"]])

    def no_route(*_: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(node_trainers.socket, "socket", no_route)
    monkeypatch.setattr(node_trainers.socket, "gethostbyname_ex", lambda name: (name, [], next(names)))
    assert own_address() == "172.17.0.3"
    with pytest.raises(PlatformError, match="no address that its nodes can reach: .* DMLS_NODE_HOST"):
        own_address()
    monkeypatch.setenv("DMLS_NODE_HOST", "10.1.2.3")
    assert own_address() == "10.1.2.3"


@pytest.mark.parametrize("joined", [True, False])
def test_only_a_leader_that_never_answered_is_an_error(joined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class PlayedNanny:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def __aenter__(self) -> None:
            if not joined:
                raise TimeoutError("no scheduler")

        async def __aexit__(self, *_: object) -> None:
            raise OSError("the scheduler is gone")

    async def watch(_: object) -> None: ...

    monkeypatch.setattr("distributed.Nanny", PlayedNanny)
    monkeypatch.setattr(node_trainers, "own_address", lambda: "127.0.0.1")
    monkeypatch.setattr(node_trainers, "_watch", watch)
    leader = SimpleNamespace(address="tls://leader:1", security=lambda: None)
    if joined:
        asyncio.run(node_trainers._work(leader))
    else:
        with pytest.raises(PlatformError, match="does not answer: no scheduler"):
            asyncio.run(node_trainers._work(leader))
