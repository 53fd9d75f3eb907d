"""The platform's page, and the page of the API."""

from __future__ import annotations

from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from dmls_core.web.api.documentation import openapi
from dmls_core.web.api.platform import may_ask_doctor, platform_view, sees_platform
from dmls_core.web.templating import render

router = APIRouter()


@router.get("/platform")
def platform_page(
    request: Request, session: SessionDep, user: Annotated[BaseUser, Depends(sees_platform)], part: str = ""
) -> HTMLResponse:
    """Show how the platform is; with ``part``, what changes."""
    template = "platform_live.html" if part else "platform.html"
    return render(request, template, platform=platform_view(session, user), doctor=may_ask_doctor(user))


@router.get("/api")
def api_page(request: Request) -> HTMLResponse:
    """Show every call of the REST API, from its OpenAPI document."""
    document = openapi(request)
    groups: dict[str, list[tuple[str, str, Any]]] = {}
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            groups.setdefault(call["tags"][0], []).append((method, path, call))
    return render(request, "api.html", document=document, groups=groups)
