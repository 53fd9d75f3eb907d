"""Triton's client: what it does when a server goes and comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dmls_core.errors import ServingError
from dmls_core.serving import TritonClient, client
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
