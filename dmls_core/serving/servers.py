"""The Triton servers that the settings name: one, or several replicas over one repository."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from dmls_core.errors import PlatformError

if TYPE_CHECKING:
    from dmls_core.serving.client import TritonClient


@contextmanager
def triton_servers(http: str, grpc: str, *, key: str = "") -> Iterator[tuple[TritonClient, ...]]:
    """Give a client for each server.

    Args:
        http: ``host:port`` of the HTTP endpoints, separated by commas.
        grpc: ``host:port`` of the gRPC endpoints, in the same order.
        key: what the servers ask for before they load a model.

    Raises:
        PlatformError: no address is set, or not as many of one kind as of the other.
    """
    from dmls_core.serving.client import TritonClient

    both = split_addresses(http), split_addresses(grpc)
    if len(both[0]) != len(both[1]):
        raise PlatformError(
            f"Triton has {len(both[0])} HTTP addresses ({http}) and {len(both[1])} gRPC addresses ({grpc}): "
            "name both endpoints of each server, in the same order"
        )
    with ExitStack() as stack:
        yield tuple(
            stack.enter_context(TritonClient(*pair, key=key)) for pair in zip(*both, strict=True)
        ) or (TritonClient("", ""),)


def split_addresses(text: str) -> list[str]:
    """Return the addresses of a list that is separated by commas."""
    return [address for part in text.split(",") if (address := part.strip())]
