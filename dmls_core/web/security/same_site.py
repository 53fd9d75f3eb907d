"""A request that changes something must come from the page itself or carry a token of its own."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dmls_core.web.details import MEDIA_TYPE, problem_details

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class SameSite:
    """Answers 403 to what another site has a browser send with the user's cookie.

    The session's cookie is ``SameSite=Lax`` already; this does not rely on it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            objection = find_objection(Headers(scope=scope))
            if objection:
                body = problem_details(403, objection)
                await JSONResponse(body, 403, media_type=MEDIA_TYPE)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def find_objection(headers: Headers) -> str:
    """Return why a request that changes something is refused; empty if it is not.

    Browsers name where a request comes from in ``Sec-Fetch-Site`` and ``Origin``, which no page can forge.
    A request with neither is a program's: it must bring a bearer token, which no browser adds by itself.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return "the request comes from another site"
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return "the request comes from another site"
    if site is None and origin is None and not headers.get("authorization", "").lower().startswith("bearer "):
        return "a program must send its token as Authorization: Bearer"
    return ""
