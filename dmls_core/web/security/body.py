"""Bodies have a bound, announced or not."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dmls_core.web.details import MEDIA_TYPE, problem_details

MIB = 2**20

BOUND = 1 * MIB
"""Bytes of a request's body."""

LARGER: tuple[tuple[str, int], ...] = (
    ("/api/v1/sniff", 9 * MIB),
    ("/api/v1/drops/", 32 * MIB),
    ("/api/v1/scores/", 512 * MIB),
)
"""(Path's beginning below the app, bytes) of routes that take more."""


class TooLargeError(Exception):
    """More bytes came than the route takes."""


class BodyLimit:
    """Answers 413 to what is larger than its route takes, before it is in memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        bound = next((size for start, size in LARGER if path.startswith(start)), BOUND)
        refusal = JSONResponse(
            problem_details(413, f"the body is larger than {bound:,} bytes"), 413, media_type=MEDIA_TYPE
        )
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdigit() or int(announced) > bound:
            await refusal(scope, receive, send)
            return
        taken, begun = 0, False

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > bound:
                raise TooLargeError
            return message

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, bounded, watched)
        except TooLargeError:
            if begun:
                raise
            await refusal(scope, receive, send)
