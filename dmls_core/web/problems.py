"""Errors as answers: problem details for programs, a page for people."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from dmls_core.errors import (
    ConflictError,
    DmlsError,
    NotFoundError,
    ObjectMissingError,
    PlatformError,
    UserError,
    ValidationIssue,
)
from dmls_core.web.details import MEDIA_TYPE, problem_details
from dmls_core.web.security.headers import HEADERS

log = logging.getLogger(__name__)

STATUSES: tuple[tuple[type[DmlsError], HTTPStatus], ...] = (
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (UserError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ObjectMissingError, HTTPStatus.NOT_FOUND),
    (ConflictError, HTTPStatus.CONFLICT),
    (PlatformError, HTTPStatus.SERVICE_UNAVAILABLE),
    (DmlsError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""Kind of error -> status; the first that fits counts."""


def add_handlers(app: FastAPI) -> None:
    """Have every error of ``app`` answered by this module."""
    app.add_exception_handler(DmlsError, _dmls)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _crash)


def problem_response(
    request: Request, status: int, detail: str, problems: Sequence[ValidationIssue | Mapping[str, Any]] = ()
) -> Response:
    """Answer with a problem: JSON below ``/api/``, a page elsewhere."""
    body = problem_details(status, detail, problems)
    if is_api(request):
        return JSONResponse(body, status, media_type=MEDIA_TYPE)
    from dmls_core.web.templating import render

    return render(request, "problem.html", status_code=status, problem=body)


def is_api(request: Request) -> bool:
    """Say whether a program asks."""
    path: str = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return path.startswith("/api/")


def login_url(request: Request) -> str:
    """Return the address of Airflow's login, which leads back to the page asked for."""
    from airflow.api_fastapi.app import get_auth_manager

    url = get_auth_manager().get_url_login()
    return f"{url}{'&' if '?' in url else '?'}{urlencode({'next': str(request.url)})}"


async def _dmls(request: Request, error: Exception) -> Response:
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    problems = error.issues if isinstance(error, UserError) else ()
    return problem_response(request, status, str(error), problems)


async def _http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == HTTPStatus.UNAUTHORIZED and not is_api(request):
        return RedirectResponse(login_url(request), HTTPStatus.SEE_OTHER)
    answer = problem_response(request, error.status_code, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


async def _invalid(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    problems = [
        ValidationIssue(
            entry["msg"], key=".".join(map(str, entry["loc"])), found=_echo(entry.get("input", ""))
        )
        for entry in error.errors()
    ]
    detail = "; ".join(f"{problem.key}: {problem.message}" for problem in problems)
    return problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, detail, problems)


def _echo(found: object) -> str:
    """Return the beginning of what was sent, without what no answer can hold."""
    return str(found)[:200].encode(errors="replace").decode()


async def _crash(request: Request, error: Exception) -> Response:
    log.error("a request to the DMLS page failed", exc_info=error)
    detail = "DMLS failed to answer; the API server's log says why."
    answer = problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, detail)
    answer.headers.update(HEADERS)  # this handler stands outside of all middleware
    return answer
