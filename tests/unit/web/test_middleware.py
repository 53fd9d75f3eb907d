"""Size limits of bodies, same-origin checks, security headers."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from dmls_core.web.middleware import BODY_LIMIT, HEADERS

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "https://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"}, True),
        ({}, True),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "http://testserver"}, False),
        ({"Authorization": "Bearer abc"}, False),
    ],
)
def test_requests_of_other_sites_that_change_something_are_refused(
    client: TestClient, headers: dict[str, str], refused: bool
):
    answer = client.post("/api/v1/echo", headers=headers, content=b"x")
    assert answer.status_code == (403 if refused else 200), answer.text


def test_large_bodies_are_refused_with_and_without_content_length(client: TestClient):
    assert client.post("/api/v1/echo", headers=SAME_ORIGIN, content=bytes(BODY_LIMIT)).json() == BODY_LIMIT
    declared = client.post("/api/v1/echo", headers=SAME_ORIGIN, content=bytes(BODY_LIMIT + 1))
    pieces = (bytes(1 << 16) for _ in range(1 + BODY_LIMIT // (1 << 16)))
    streamed = client.post("/api/v1/echo", headers=SAME_ORIGIN, content=pieces)
    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert declared.json()["title"] == "Request Entity Too Large" or declared.json()["status"] == 413


def test_the_content_security_policy_blocks_inline_scripts_and_styles():
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'self'"
