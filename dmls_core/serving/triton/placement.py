"""Place models on some of several Triton servers: each model on those that rendezvous hashing picks.

Publishers, the repair and clients read the same list of addresses, and so find the same servers: there is no
record of it. A server that is added takes over its share of the models, and moves no others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import overload

from dmls_core.errors import PlatformError, ServingError
from dmls_core.serving.triton.addresses import first_address, split_addresses, split_copies
from dmls_core.serving.triton.client import TritonClient
from dmls_core.serving.triton.loading import load_version, unload


@dataclass(frozen=True, slots=True)
class Servers(Sequence[TritonClient]):
    """Clients of all servers, of which each model is placed on ``copies``; 0 stands for all of them."""

    clients: tuple[TritonClient, ...]
    copies: int

    @overload
    def __getitem__(self, index: int) -> TritonClient: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[TritonClient]: ...

    def __getitem__(self, index: int | slice) -> TritonClient | Sequence[TritonClient]:
        """Return a client by its position in the list of addresses."""
        return self.clients[index]

    def __len__(self) -> int:
        """Return the number of servers."""
        return len(self.clients)


@contextmanager
def triton_servers(http: str, grpc: str, *, key: str = "") -> Iterator[Servers]:
    """Yield a client for each server; see ``split_addresses``. Both lists are in the same order.

    ``key``: of servers that restrict who may load models.

    Raises:
        PlatformError: no address is set, a name cannot be resolved, or the numbers of HTTP and gRPC addresses
            or of copies differ.
    """
    resolved: dict[str, list[str]] = {}  # a name is resolved once, so that both ports are of the same server
    both = split_addresses(http, resolved), split_addresses(grpc, resolved)
    if len(both[0]) != len(both[1]):
        raise PlatformError(
            f"Triton has {len(both[0])} HTTP addresses ({http}) and {len(both[1])} gRPC addresses ({grpc}): "
            "name both endpoints of each server, in the same order"
        )
    copies = split_copies(grpc)
    if split_copies(http) != copies:
        raise PlatformError(
            f"Triton's HTTP addresses ({http}) and its gRPC addresses ({grpc}) differ in copies=: begin both "
            "lists with the same"
        )
    with ExitStack() as stack:
        clients = [stack.enter_context(TritonClient(*pair, key=key)) for pair in zip(*both, strict=True)]
        yield Servers(tuple(clients) or (TritonClient("", ""),), copies)


def select_servers(servers: Sequence[TritonClient], model: str) -> tuple[TritonClient, ...]:
    """Return the clients of the servers that are to serve ``<team>.<job>``, the preferred one first."""
    if not (isinstance(servers, Servers) and servers.copies):
        return tuple(servers)
    by_address = {client.addresses["grpc"]: client for client in servers}
    return tuple(by_address[address] for address in rank(by_address, model)[: servers.copies])


def find_addresses(text: str, model: str) -> list[str]:
    """Return the gRPC addresses at which a client may ask for a model, in the order in which to try them.

    ``text`` is a list as ``DMLS_TRITON_GRPC`` holds it. If models are placed, the servers of this one come
    first, in random order; the others follow, since a model moves when a server is added or removed.

    Raises:
        PlatformError: a name cannot be resolved, or the number of copies is wrong.
    """
    copies = split_copies(text)
    if not copies:
        return [first_address(text)]
    ranked = rank(split_addresses(text), model)
    placed = ranked[:copies]
    random.shuffle(placed)
    return placed + ranked[copies:]


def find_http_address(http: str, grpc: str, model: str) -> str:
    """Return the HTTP address at which a link to a model leads to a server that has it.

    Raises:
        PlatformError: as ``triton_servers``.
    """
    if not split_copies(grpc):
        return first_address(http)
    with triton_servers(http, grpc) as servers:
        return select_servers(servers, model)[0].addresses["http"]


def update_leftovers(clients: Iterable[TritonClient], model: str, version: int) -> None:
    """Load a version on those servers from which the model was not unloaded yet, and that answer."""
    for client in clients:
        with suppress(ServingError):
            if client.versions(model):
                load_version(client, model, version)


def unload_leftovers(clients: Iterable[TritonClient], model: str) -> list[str]:
    """Unload a model from servers on which it is not placed any more; return their addresses.

    A server that does not answer is left out.
    """
    left = []
    for client in clients:
        with suppress(ServingError):
            if client.versions(model):
                unload(client, model)
                left.append(client.addresses["http"])
    return left


def rank(addresses: Iterable[str], model: str) -> list[str]:
    """Return gRPC addresses by their hash with the model's name, the largest first."""
    return sorted(addresses, key=lambda address: _score(address, model), reverse=True)


def _score(address: str, model: str) -> bytes:
    return blake2b(f"{model}\n{address}".encode(), digest_size=16).digest()
