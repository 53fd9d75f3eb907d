"""The servers on which models are placed: the same for all parties, few moves, an even share."""

from __future__ import annotations

from collections import Counter

import pytest

from dmls_core.errors import PlatformError
from dmls_core.serving import triton_servers
from dmls_core.serving.triton.addresses import first_address, split_addresses, split_copies
from dmls_core.serving.triton.placement import find_addresses, find_http_address, rank, select_servers

FOUR = [f"10.0.0.{number}:8001" for number in range(4)]
MODELS = [f"lab.m{number}" for number in range(2000)]


def placed(addresses, copies=2):
    return {model: set(rank(addresses, model)[:copies]) for model in MODELS}


def test_a_server_that_joins_takes_its_share_and_moves_no_other_model():
    before, after = placed(FOUR[:3]), placed(FOUR)
    assert all(after[model] - before[model] <= {FOUR[3]} for model in MODELS)
    moved = sum(before[model] != after[model] for model in MODELS)
    assert moved == pytest.approx(len(MODELS) / 2, rel=0.1), "two copies of each on four servers"


def test_servers_have_equal_shares_and_the_order_of_the_list_is_irrelevant():
    shares = Counter(address for found in placed(FOUR).values() for address in found)
    assert min(shares.values()) > 0.9 * len(MODELS) / 2
    assert placed(FOUR) == placed(FOUR[::-1])


def test_publishers_and_clients_find_the_same_servers():
    grpc = "copies=2," + ",".join(FOUR)
    with triton_servers(grpc.replace("8001", "8000"), grpc) as servers:
        for model in MODELS[:20]:
            chosen = {client.addresses["grpc"] for client in select_servers(servers, model)}
            order = find_addresses(grpc, model)
            assert set(order[:2]) == chosen
            assert sorted(order) == FOUR


def test_a_link_to_a_model_leads_to_a_server_that_has_it():
    grpc = "copies=1," + ",".join(FOUR)
    found = {find_http_address(grpc.replace("8001", "8000"), grpc, model) for model in MODELS[:50]}
    assert len(found) == 4
    best = rank(FOUR, "lab.m0")[0].replace("8001", "8000")
    assert find_http_address(grpc.replace("8001", "8000"), grpc, "lab.m0") == best
    assert find_http_address("dns:triton:8000", "dns:triton:8001", "lab.m0") == "triton:8000"


def test_clients_spread_over_the_servers_of_a_model():
    grpc = "copies=2," + ",".join(FOUR)
    assert len({find_addresses(grpc, "lab.a")[0] for _ in range(50)}) == 2


def test_without_copies_every_server_has_every_model():
    with triton_servers("a:1,b:1", "a:2,b:2") as servers:
        assert select_servers(servers, "lab.a") == tuple(servers)
    assert find_addresses("a:2,b:2", "lab.a") == ["a:2"]


def test_the_number_of_copies_is_no_address():
    text = " copies=2, a:1,b:1"
    assert (split_copies(text), split_addresses(text), first_address(text)) == (2, ["a:1", "b:1"], "a:1")
    assert split_copies("a:1") == 0


@pytest.mark.parametrize("text", ["copies=0,a:1", "copies=,a:1", "copies=two,a:1"])
def test_a_wrong_number_of_copies_is_named(text):
    with pytest.raises(PlatformError, match="is not a number: write copies=2"):
        split_copies(text)


def test_lists_that_disagree_on_the_copies_are_an_error():
    with (
        pytest.raises(PlatformError, match="begin both lists with the same"),
        triton_servers("a:1", "copies=1,a:2"),
    ):
        pass
