"""Triton's client: what it does when a server goes and comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dmls_core.errors import PlatformError, ServingError
from dmls_core.serving import TritonClient, triton_servers
from dmls_core.serving.triton import client
from dmls_core.serving.triton.addresses import split_addresses
from tests.services.seaweed import free_ports


class Answers(service_pb2_grpc.GRPCInferenceServiceServicer):
    def ModelReady(self, _request, _context):  # noqa: N802  the name of the protocol
        return service_pb2.ModelReadyResponse(ready=True)


def test_a_server_that_is_back_is_found_by_the_next_request(monkeypatch):
    """gRPC alone waits before it connects again, and fails every request until then."""
    monkeypatch.setattr(
        client,
        "CHANNEL",
        [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 600_000)],
    )
    (port,) = free_ports(1)
    with TritonClient("127.0.0.1:1", f"127.0.0.1:{port}") as asking:
        with pytest.raises(ServingError, match="Triton does not answer"):
            asking.ready("lab.a")
        server = grpc.server(ThreadPoolExecutor(1))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Answers(), server)
        assert server.add_insecure_port(f"127.0.0.1:{port}") == port
        server.start()
        try:
            assert asking.ready("lab.a")
        finally:
            server.stop(None).wait()


def test_a_name_stands_for_all_its_servers_in_the_same_order(monkeypatch):
    asked = []

    def resolve(name, port, family, kind):
        asked.append(name)
        hosts = ["10.0.0.20", "10.0.0.3", "10.0.0.20"]
        return [(family, kind, 6, "", (host, 0)) for host in hosts]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    assert split_addresses(" one:1 ,, dns:triton:8000") == ["one:1", "10.0.0.3:8000", "10.0.0.20:8000"]
    with triton_servers("dns:triton:8000", "dns:triton:8001") as servers:
        assert [list(client.addresses.values()) for client in servers] == [
            [f"10.0.0.{host}:8000", f"10.0.0.{host}:8001"] for host in (3, 20)
        ]
    assert asked == ["triton", "triton"], "once for each look"


@pytest.mark.parametrize("address", ["dns:triton", "dns::8000", "dns:triton:http"])
def test_a_name_without_its_port_is_an_error(address):
    with pytest.raises(PlatformError, match=r"is not an address: expected dns:NAME:PORT"):
        split_addresses(address)


def test_a_name_without_an_address_is_an_error():
    with pytest.raises(PlatformError, match=r"the name triton\.invalid of Triton's servers has no address"):
        split_addresses("dns:triton.invalid:8000")
