"""Addresses of Triton's endpoints: ``host:port``, with ``https://`` or ``grpcs://`` before it for TLS."""

from __future__ import annotations

import ssl
from typing import Any, Literal, NamedTuple

from dmls_core.errors import PlatformError

Protocol = Literal["http", "grpc"]
PROTOCOLS: tuple[Protocol, ...] = ("http", "grpc")


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


def split_addresses(text: str) -> list[str]:
    """Return the addresses of a comma-separated list."""
    return [address for part in text.split(",") if (address := part.strip())]
