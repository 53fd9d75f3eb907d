from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dmls_core.devstack.platform import RANGE, Platform, choose_ports, is_free, reserve_standard_ports
from dmls_core.devstack.startup import STANDARD_PORTS
from dmls_core.errors import PlatformError


@pytest.fixture
def taken() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_new_ports_are_free_distinct_and_below_the_range_of_outgoing_connections():
    chosen = choose_ports([f"p{i}" for i in range(40)], {}, {})
    assert len(set(chosen.values())) == 40
    assert all(port in RANGE and is_free(port) for port in chosen.values())


def test_a_standard_port_is_used_where_it_is_free_and_not_kept_by_another_service(taken: int):
    free, kept = choose_ports(["x", "y"], {}, {}).values()
    standard = {"a": taken, "b": free, "c": kept}
    chosen = choose_ports(["a", "b", "c"], {"z": kept}, {}, standard=standard)
    assert chosen["b"] == free
    assert chosen["a"] in RANGE
    assert chosen["c"] in RANGE
    assert chosen["c"] != kept
    assert choose_ports(["b"], {"b": kept}, {}, standard=standard) == {"b": kept}


def test_two_platforms_that_start_together_do_not_choose_the_same_standard_ports(monkeypatch):
    monkeypatch.setattr("dmls_core.devstack.platform.PORTS_LOCK", f"\0dmls-test-{os.getpid()}")
    with reserve_standard_ports() as first, reserve_standard_ports() as second:
        assert (dict(first), dict(second)) == (STANDARD_PORTS, {})
    with reserve_standard_ports() as later:
        assert later == STANDARD_PORTS


def test_kept_ports_are_kept():
    first = choose_ports(["a", "b"], {}, {})
    assert choose_ports(["a", "b"], first, {}) == first


def test_a_kept_port_that_another_process_took_is_replaced_and_no_other(taken: int):
    kept = {"a": taken, **choose_ports(["b"], {}, {})}
    chosen = choose_ports(["a", "b"], kept, {})
    assert chosen["a"] != taken
    assert chosen["b"] == kept["b"]


def test_a_port_taken_by_the_service_it_is_for_is_kept(taken: int):
    assert choose_ports(["a"], {"a": taken}, {}, busy_is_ours=["a"]) == {"a": taken}
    assert choose_ports(["a"], {"a": taken}, {"a": taken}, busy_is_ours=["a"]) == {"a": taken}


def test_a_given_port_wins_and_a_kept_one_moves_out_of_its_way():
    (port,) = choose_ports(["x"], {}, {}).values()
    chosen = choose_ports(["a", "b"], {"a": port}, {"b": port})
    assert chosen["b"] == port
    assert chosen["a"] != port


def test_a_given_port_that_is_taken_is_an_error(taken: int):
    with pytest.raises(PlatformError, match=f"port {taken}, asked for a, is taken"):
        choose_ports(["a"], {}, {"a": taken})


def test_a_platform_that_never_was_is_down_and_leaves_no_trace(tmp_path: Path):
    platform = Platform(tmp_path / ".dmls")
    assert not platform.status().up
    assert platform.status().settings is None
    assert platform.down() == []
    assert not platform.folder.exists()


def test_a_port_for_nothing_is_an_error_and_starts_nothing(tmp_path: Path):
    platform = Platform(tmp_path / ".dmls", ports={"airflo": 8080})
    with pytest.raises(PlatformError, match="no service has a port called airflo"):
        platform.up()
    assert not (platform.folder / "supervisord.conf").exists()
    assert not platform.status().up
