"""Middleware around every route: limits of bodies, origins, security headers; problem details."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dmls_core.errors import PlatformError, ValidationIssue
from dmls_core.settings import CORS_ORIGINS, ProcessSettings

MEDIA_TYPE = "application/problem+json"

PROBLEM_RESPONSE: dict[str, Any] = {
    "description": "Problem details: what is wrong, where, and how to fix it.",
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                    "problems": {"type": "array", "items": {"type": "object"}},
                },
            }
        }
    },
}
"""Every response that is not a success, in the OpenAPI document."""


def problem_details(
    status: int, detail: str, problems: Sequence[ValidationIssue | Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the JSON object of problem details (RFC 9457); ``problems`` are as in ``_status.json``."""
    entries = [
        problem.as_json() if isinstance(problem, ValidationIssue) else dict(problem) for problem in problems
    ]
    title = HTTPStatus(status).phrase
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return {**body, "problems": entries} if entries else body


MIB = 2**20

BODY_LIMIT = 1 * MIB
"""Largest body of a request, in bytes."""

REQUEST_ID = "X-Request-ID"
"""Header with the id of a prediction request in the inference log."""

NOTES = "DMLS-Notes"
"""Header with the numbers of notes on the rows of a prediction request."""

PREDICTIONS = "/api/v1/predictions/"
"""Paths below the app that pages of other origins may call."""

LARGER_BODIES: tuple[tuple[str, int], ...] = (
    (r"/api/v1/sniff", 72 * MIB),
    (r"/api/v1/drops/[^/]+/[^/]+/uploads/", 96 * MIB),
    (r"/api/v1/drops/", 72 * MIB),
    (PREDICTIONS, 32 * MIB),
    (r"/api/v1/scores/", 512 * MIB),
    (r"/api/v1/scoring/[^/]+/[^/]+/file", 512 * MIB),
    (r"/api/v1/scoring/", 72 * MIB),
)
"""(Beginning of the path below the app as a regular expression, bytes) of routes that accept more."""

PATIENCE = 30.0
"""Seconds for which a client may keep the server waiting, to receive a body or to send a response."""

PACE = 64 << 10
"""Bytes for which it may keep the server waiting another second."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
"""No inline scripts or styles, nothing from other origins; Airflow's own page may frame this one."""

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Headers of every response that does not set its own."""


class TooLargeError(Exception):
    """The body is larger than the route accepts."""


class BodyLimit:
    """Middleware that responds with 413 to a body that is too large, before it is in memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = _path(scope)
        limit = next((size for beginning, size in LARGER_BODIES if re.match(beginning, path)), BODY_LIMIT)
        too_large = _problem(413, f"the body is larger than {limit:,} bytes")
        content_length = Headers(scope=scope).get("content-length", "0")
        if not content_length.isdigit() or int(content_length) > limit:
            await too_large(scope, receive, send)
            return
        received, started = 0, False

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise TooLargeError
            return message

        async def observed(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, limited, observed)
        except TooLargeError:
            if started:
                raise
            await too_large(scope, receive, send)


class Pace:
    """Middleware that ends requests whose client sends its body, or receives its response, too slowly.

    Otherwise it would keep what the route holds meanwhile: memory, files, and a slot.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        receiving, sending = _Clock(), _Clock()
        complete = started = False

        async def timed_receive() -> Message:
            nonlocal complete
            if complete:  # It waits for the client to disconnect, while the route works.
                return await receive()
            message: Message = await receiving.wait(receive())
            receiving.bytes += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            return message

        async def timed_send(message: Message) -> None:
            nonlocal started
            started = True
            sending.bytes += len(message.get("body", b""))
            await sending.wait(send(message))

        try:
            await self._app(scope, timed_receive, timed_send)
        except SlowClientError:
            if started:
                raise
            detail = f"the body arrived too slowly: less than {PACE:,} bytes a second"
            await _problem(408, detail)(scope, receive, send)


class SlowClientError(Exception):
    """The client keeps the server waiting."""


class _Clock:
    """Counts the bytes that passed, and the seconds that the server waited for them."""

    def __init__(self) -> None:
        self.bytes, self.seconds = 0, 0.0

    async def wait(self, transfer: Awaitable[Any]) -> Any:
        started = time.monotonic()
        try:
            return await asyncio.wait_for(transfer, PATIENCE + self.bytes / PACE - self.seconds)
        except TimeoutError:
            raise SlowClientError from None
        finally:
            self.seconds += time.monotonic() - started


class SameOrigin:
    """Middleware that responds with 403 to requests that change something and come from another site.

    The session cookie is ``SameSite=Lax`` already; this check does not rely on it. Pages of ``origins`` may
    predict, with a bearer token: from them, a cookie identifies no user.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str] = ()) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            headers = Headers(scope=scope)
            if headers.get("origin") in self._origins and _path(scope).startswith(PREDICTIONS):
                scope = _without_session(scope)
                objection = "" if _has_bearer(headers) else "send an API key as Authorization: Bearer"
            else:
                objection = find_objection(headers)
            if objection:
                await _problem(403, objection)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def find_objection(headers: Headers) -> str:
    """Return why a request that changes something is refused; empty if it is allowed.

    Browsers state the origin of a request in ``Sec-Fetch-Site`` and ``Origin``, which no page can forge. A
    request without either comes from a program and needs a bearer token, which no browser adds by itself.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return "the request comes from another site"
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return "the request comes from another site"
    if site is None and origin is None and not _has_bearer(headers):
        return "a program must send a token, or to predict an API key, as Authorization: Bearer"
    return ""


def _has_bearer(headers: Headers) -> bool:
    return headers.get("authorization", "").lower().startswith("bearer ")


def _without_session(scope: Scope) -> Scope:
    """Return a request without cookies and without the user whom Airflow has read from them."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
    return {**scope, "headers": headers, "state": {}}


class PredictionCors:
    """Middleware that answers preflights for predictions, and lets pages of ``origins`` read the responses.

    Without ``Access-Control-Allow-Credentials``, a browser hides responses to requests with cookies.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._cors = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=["POST"],
            allow_headers=["Authorization", REQUEST_ID],
            expose_headers=[REQUEST_ID, NOTES],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        covered = scope["type"] == "http" and _path(scope).startswith(PREDICTIONS)
        await (self._cors if covered else self._app)(scope, receive, send)


def allowed_origins() -> tuple[str, ...]:
    """Return the origins whose pages may predict.

    Raises:
        PlatformError: the setting has an entry that is no origin.
    """
    texts = ProcessSettings.from_environment().cors_origins.split(",")
    origins = tuple(text.strip() for text in texts if text.strip())
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc.lower()}":
            raise PlatformError(
                f"{CORS_ORIGINS} names {origin!r}: write origins such as https://shop.example, separated by "
                "commas, in lowercase and without a path"
            )
    return origins


class SecurityHeaders:
    """Middleware that adds ``HEADERS`` to every response, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


def _path(scope: Scope) -> str:
    """Return the path below the app."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _problem(status: int, detail: str) -> JSONResponse:
    return JSONResponse(problem_details(status, detail), status, media_type=MEDIA_TYPE)
