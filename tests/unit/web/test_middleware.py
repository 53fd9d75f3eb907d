"""Size limits of bodies, origins, security headers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from airflow.api_fastapi.app import create_auth_manager
from fastapi import Request
from fastapi.testclient import TestClient
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from dmls_core.errors import PlatformError
from dmls_core.settings import CORS_ORIGINS
from dmls_core.testing.stores import run_coroutine
from dmls_core.web import middleware
from dmls_core.web.app import create_app
from dmls_core.web.middleware import BODY_LIMIT, HEADERS, PREDICTIONS, Pace, allowed_origins

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


SHOP, EVIL = "https://shop.example", "https://evil.example"
BEARER = {"Authorization": "Bearer dmls_0"}
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """An app that a page of another origin may call, with two routes that return what identifies a user."""
    monkeypatch.setenv(CORS_ORIGINS, f"http://localhost:3000, {SHOP}")
    create_auth_manager()
    app = create_app()

    @app.post(f"{PREDICTIONS}echo")
    @app.post("/api/v1/echo")
    async def echo(request: Request) -> list[str]:
        return [*request.cookies, request.headers["authorization"], *vars(request.state)["_state"]]

    return TestClient(app, raise_server_exceptions=False)


def test_pages_of_allowed_origins_may_predict_and_read_the_response(shop: TestClient):
    headers = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site", **BEARER}
    answer = shop.post(f"{PREDICTIONS}echo", headers=headers)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, SHOP)
    refused = shop.post(f"{PREDICTIONS}lab/iris", headers=headers)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, SHOP)
    large = shop.post(f"{PREDICTIONS}lab/iris", headers=headers | {"Content-Length": "999999999"})
    assert (large.status_code, large.headers["access-control-allow-origin"]) == (413, SHOP)


def test_preflights_are_answered_before_the_login(shop: TestClient):
    answer = shop.options(f"{PREDICTIONS}lab/iris", headers={"Origin": SHOP, **PREFLIGHT})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        (f"{PREDICTIONS}lab/iris", EVIL),
        (f"{PREDICTIONS}lab/iris", "null"),
        (f"{PREDICTIONS}lab/iris", f"{SHOP}.evil.example"),
        (f"{PREDICTIONS}lab/iris", f"{SHOP}:8443"),
        ("/api/v1/echo", SHOP),
        ("/api/v1/jobs/lab/iris/keys", SHOP),
        ("/api/v1/scores/lab/iris", SHOP),
    ],
)
def test_other_origins_and_other_routes_stay_closed(shop: TestClient, path: str, origin: str):
    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", **BEARER}
    answer = shop.post(path, headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (403, "the request comes from another site")
    preflight = shop.options(path, headers={"Origin": origin, **PREFLIGHT})
    assert preflight.status_code in (400, 401, 405), preflight.text
    for response in (answer, preflight):
        assert "access-control-allow-origin" not in response.headers


def test_a_cookie_identifies_no_user_of_another_origin(shop: TestClient):
    """A page on another port of the same host is same-site: the browser sends the session cookie."""
    cookie = {"Origin": SHOP, "Sec-Fetch-Site": "same-site", "Cookie": "_token=session"}
    answer = shop.post(f"{PREDICTIONS}echo", headers=cookie)
    assert (answer.status_code, answer.json()["detail"]) == (403, "send an API key as Authorization: Bearer")
    assert shop.post(f"{PREDICTIONS}echo", headers=cookie | BEARER).json() == ["Bearer dmls_0"]


def test_without_the_setting_every_other_origin_is_refused(client: TestClient):
    answer = client.post(f"{PREDICTIONS}lab/iris", headers={"Origin": SHOP, **BEARER})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "text",
    ["*", "shop.example", f"{SHOP}/", f"{SHOP}/app", "ftp://shop.example", "https://Shop.example", "null"],
)
def test_what_is_no_origin_is_refused(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setenv(CORS_ORIGINS, f"{SHOP},{text}")
    with pytest.raises(PlatformError, match=CORS_ORIGINS):
        allowed_origins()


@pytest.mark.parametrize(
    ("chunk", "pause", "status"),
    [(1 << 16, 0.01, 200), (1, 0.01, 408), (1 << 16, 5.0, 408)],
)
def test_a_client_may_not_send_its_body_slowly(
    monkeypatch: pytest.MonkeyPatch, chunk: int, pause: float, status: int
):
    """A quick client has more time for more bytes; a slow one, or one that stops, is refused."""
    monkeypatch.setattr(middleware, "PATIENCE", 0.05)
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await Response()(scope, receive, send)

    async def ask() -> None:
        chunks = iter(range(10, -1, -1))

        async def receive() -> Message:
            await asyncio.sleep(pause)
            return {"type": "http.request", "body": bytes(chunk), "more_body": next(chunks) > 0}

        async def send(message: Message) -> None:
            sent.append(message)

        await Pace(app)({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send)

    run_coroutine(ask())
    assert sent[0]["status"] == status


def test_a_client_may_not_read_its_response_slowly(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(middleware, "PATIENCE", 0.01)

    async def ask() -> None:
        async def send(message: Message) -> None:
            await asyncio.sleep(5 if message["type"] == "http.response.body" else 0)

        await Pace(Response(b"x"))({"type": "http"}, None, send)  # type: ignore[arg-type]

    with pytest.raises(middleware.SlowClientError):
        run_coroutine(ask())
