"""JSON bodies of requests, which are parsed strictly, and only of users who have signed in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict

from dmls_core.airflow.auth import current_user
from dmls_core.data.request_json import load_json
from dmls_core.errors import DataError
from dmls_core.web.dependencies import signed_in


class Body(BaseModel):
    """A request body; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class JsonRequest(Request):
    """A request whose JSON is parsed by ``load_json``."""

    async def json(self) -> Any:
        """Return the parsed body, or respond with 422."""
        try:
            return load_json(await self.body())
        except DataError as error:  # FastAPI lets only this exception through
            raise HTTPException(422, str(error)) from error


class JsonRoute(APIRoute):
    """A route of the REST API; every router with a JSON body has it as ``route_class``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that gets a ``JsonRequest``."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            # FastAPI parses the body before it asks the dependencies.
            if signed_in not in request.app.dependency_overrides:
                await current_user(request)
            return await handler(JsonRequest(request.scope, request.receive))

        return handle
