"""Addresses of Triton's endpoints: ``host:port``, with ``https://`` or ``grpcs://`` before it for TLS.

``dns:NAME:PORT`` stands for all servers with a name. ``copies=2`` at the beginning of a list places each
model on two of its servers.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, Literal, NamedTuple

from dmls_core.errors import PlatformError

Protocol = Literal["http", "grpc"]
PROTOCOLS: tuple[Protocol, ...] = ("http", "grpc")

_DNS = "dns:"
"""Prefix of an address that stands for all servers with a name."""

_COPIES = "copies="
"""Beginning of a list whose models are each placed on this number of its servers."""


class Address(NamedTuple):
    """An endpoint: ``host:port``, its protocol, and whether it is behind TLS."""

    server: str
    protocol: Protocol
    tls: bool

    @property
    def url(self) -> str:
        """Its URL, such as ``https://triton.example:8443``."""
        return f"{self.protocol}{'s' if self.tls else ''}://{self.server}"

    def __str__(self) -> str:
        """Return it as people write it: ``host:port``, or its URL if it is behind TLS."""
        return self.url if self.tls else self.server

    def client_options(self) -> dict[str, Any]:
        """Return the arguments of tritonclient's ``InferenceServerClient`` for this address.

        Certificates are checked with the system's authorities, or those in ``SSL_CERT_FILE``; gRPC by itself
        would trust its own list.
        """
        options: dict[str, Any] = {"url": self.server}
        if self.tls:
            options["ssl"] = True
            if self.protocol == "grpc":
                options["root_certificates"] = ssl.get_default_verify_paths().cafile
        return options


def parse_address(text: str, protocol: Protocol) -> Address:
    """Read the address of an endpoint.

    Raises:
        PlatformError: it has the scheme of something else.
    """
    scheme, separator, server = text.strip().rpartition("://")
    if separator and scheme not in (protocol, f"{protocol}s"):
        raise PlatformError(
            f"{text!r} is not an address of Triton's {protocol} endpoint: write host:port, or "
            f"{protocol}s://host:port for TLS"
        )
    return Address(server.rstrip("/"), protocol, scheme == f"{protocol}s")


def split_addresses(text: str, resolved: dict[str, list[str]] | None = None) -> list[str]:
    """Return the addresses of a comma-separated list, without its number of copies.

    ``dns:NAME:PORT`` stands for the IPv4 addresses that the name has at this moment, sorted. ``resolved``
    holds those of names that were resolved before.

    Raises:
        PlatformError: a name cannot be resolved.
    """
    resolved = {} if resolved is None else resolved
    addresses = []
    for part in _without_copies(text).split(","):
        address = part.strip()
        if not address.startswith(_DNS):
            addresses += [address] if address else []
            continue
        name, _, port = address.removeprefix(_DNS).rpartition(":")
        if not (name and port.isdecimal()):
            raise PlatformError(f"{address} is not an address: expected {_DNS}NAME:PORT")
        if name not in resolved:
            resolved[name] = _resolve(name)
        addresses += [f"{host}:{port}" for host in resolved[name]]
    return addresses


def first_address(text: str) -> str:
    """Return the first address of a list as ``split_addresses`` takes it, or an empty text.

    A name that stands for several servers stays a name: connections to it are spread over them.
    """
    return _without_copies(text).partition(",")[0].strip().removeprefix(_DNS)


def split_copies(text: str) -> int:
    """Return the number of servers of a list on which each model is placed; 0 stands for all of them.

    Raises:
        PlatformError: it is not a number from 1.
    """
    first, _, _ = text.strip().partition(",")
    if not first.startswith(_COPIES):
        return 0
    number = first.removeprefix(_COPIES).strip()
    if not (number.isdecimal() and int(number)):
        raise PlatformError(
            f"{first!r} in Triton's addresses is not a number: write {_COPIES}2 for two servers a model"
        )
    return int(number)


def _without_copies(text: str) -> str:
    first, _, others = text.strip().partition(",")
    return others if first.startswith(_COPIES) else text


def _resolve(name: str) -> list[str]:
    try:
        answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise PlatformError(
            f"the name {name} of Triton's servers has no address ({error}): start one, or correct the name"
        ) from error
    return sorted({str(answer[4][0]) for answer in answers}, key=socket.inet_aton)
