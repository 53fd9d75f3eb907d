"""Addresses of Triton, with and without TLS."""

from __future__ import annotations

import pytest

from dmls_core.errors import PlatformError
from dmls_core.serving.triton.addresses import Protocol, parse_address, split_addresses


@pytest.mark.parametrize(
    ("text", "protocol", "url", "written"),
    [
        ("triton:8000", "http", "http://triton:8000", "triton:8000"),
        ("http://triton:8000/", "http", "http://triton:8000", "triton:8000"),
        ("https://triton:8443", "http", "https://triton:8443", "https://triton:8443"),
        ("grpcs://[::1]:8444", "grpc", "grpcs://[::1]:8444", "grpcs://[::1]:8444"),
    ],
)
def test_schemes(text: str, protocol: Protocol, url: str, written: str) -> None:
    address = parse_address(text, protocol)
    assert (address.url, str(address)) == (url, written)
    assert address.client_options().get("ssl", False) is address.tls
    assert parse_address(address.url, protocol) == address


@pytest.mark.parametrize(("text", "protocol"), [("https://triton:8444", "grpc"), ("s3://models", "http")])
def test_the_scheme_of_something_else_is_refused(text: str, protocol: Protocol) -> None:
    with pytest.raises(PlatformError, match=rf"{protocol}s://host:port for TLS"):
        parse_address(text, protocol)


def test_a_list_may_have_spaces_and_a_comma_at_its_end() -> None:
    assert split_addresses("a:1, b:2,") == ["a:1", "b:2"]
