"""Handle errors: the API responds with problem details, pages with an error page."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from dmls_core.airflow import api_keys
from dmls_core.errors import (
    ConflictError,
    DmlsError,
    NotFoundError,
    ObjectMissingError,
    PlatformError,
    UserError,
    ValidationIssue,
)
from dmls_core.serving.repository.locks import BusyError
from dmls_core.web.middleware import HEADERS, MEDIA_TYPE, problem_details
from dmls_core.web.services.request_slots import RETRY_SECONDS, BusyServerError

log = logging.getLogger(__name__)

STATUSES: tuple[tuple[type[DmlsError], HTTPStatus], ...] = (
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (UserError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ObjectMissingError, HTTPStatus.NOT_FOUND),
    (ConflictError, HTTPStatus.CONFLICT),
    (BusyError, HTTPStatus.CONFLICT),
    (PlatformError, HTTPStatus.SERVICE_UNAVAILABLE),
    (DmlsError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""Status code of each error class; the first match applies."""


KEY_ELSEWHERE = "an API key only opens POST /predictions/...: other routes need a token of POST /auth/token"


def add_handlers(app: FastAPI) -> None:
    """Register the handlers of this module with ``app``."""
    app.add_exception_handler(DmlsError, _dmls)
    app.add_exception_handler(BusyServerError, _busy)
    app.add_exception_handler(HTTPException, _http)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _crash)


def problem_response(
    request: Request, status: int, detail: str, problems: Sequence[ValidationIssue | Mapping[str, Any]] = ()
) -> Response:
    """Return an error as JSON below ``/api/`` and as a page elsewhere."""
    body = problem_details(status, detail, problems)
    if is_api(request):
        return JSONResponse(body, status, media_type=MEDIA_TYPE)
    from dmls_core.web.templating import render

    return render(request, "problem.html", status_code=status, problem=body)


def is_api(request: Request) -> bool:
    """Return whether the request is one of the REST API."""
    path: str = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return path.startswith("/api/")


async def _dmls(request: Request, error: Exception) -> Response:
    status = next(status for error_type, status in STATUSES if isinstance(error, error_type))
    problems = error.issues if isinstance(error, UserError) else ()
    return problem_response(request, status, str(error), problems)


async def _busy(request: Request, error: Exception) -> Response:
    by_caller = isinstance(error, BusyServerError) and error.by_caller
    status = HTTPStatus.TOO_MANY_REQUESTS if by_caller else HTTPStatus.SERVICE_UNAVAILABLE
    response = problem_response(request, status, str(error))
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _has_key(request: Request) -> bool:
    """Return whether a request to a route that accepts no API key has one."""
    token = request.headers.get("authorization", "").partition(" ")[2].strip()
    path: str = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return token.startswith(api_keys.PREFIX) and not path.startswith("/api/v1/predictions/")


async def _http(request: Request, error: HTTPException) -> Response:
    if error.status_code == HTTPStatus.UNAUTHORIZED and not is_api(request):
        return RedirectResponse(_login_url(request), HTTPStatus.SEE_OTHER)
    denied = error.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    detail = KEY_ELSEWHERE if denied and _has_key(request) else str(error.detail)
    response = problem_response(request, error.status_code, detail)
    response.headers.update(error.headers or {})
    return response


def _login_url(request: Request) -> str:
    """Return the URL of Airflow's login, which redirects back to the page."""
    from dmls_core.airflow.auth import login_url

    url = login_url()
    return f"{url}{'&' if '?' in url else '?'}{urlencode({'next': str(request.url)})}"


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    entries = error.errors()
    absent = [entry["loc"] for entry in entries if entry["type"] == "missing"]
    problems = [
        ValidationIssue(
            "is not a key of this request" if entry["type"] == "extra_forbidden" else entry["msg"],
            key=".".join(map(_excerpt, entry["loc"])),
            found=_excerpt(entry.get("input", "")),
            hint=_hint(entry, absent),
        )
        for entry in entries
    ]
    detail = "; ".join(
        f"{problem.key}: {problem.message}{problem.hint and f' ({problem.hint})'}" for problem in problems
    )
    return problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, detail, problems)


def _hint(entry: Mapping[str, Any], absent: Sequence[tuple[Any, ...]]) -> str:
    """Return the absent key that an unknown one stands for."""
    *parents, name = entry["loc"]
    near = [str(loc[-1]) for loc in absent if list(loc[:-1]) == parents]
    close = get_close_matches(_excerpt(name), near, 1) if entry["type"] == "extra_forbidden" else []
    return f"write {close[0]!r}" if close else ""


def _excerpt(value: object) -> str:
    """Return the beginning of the input, without characters that UTF-8 cannot encode."""
    return str(value)[:200].encode(errors="replace").decode()


async def _crash(request: Request, error: Exception) -> Response:
    log.error("a request to the DMLS page failed", exc_info=error)
    detail = "DMLS failed to answer this request; the API server's log has the details."
    response = problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, detail)
    response.headers.update(HEADERS)  # this handler runs outside all middleware
    return response
