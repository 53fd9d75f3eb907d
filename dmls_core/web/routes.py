"""The one list of routers: a new module with a ``router`` is added here."""

from __future__ import annotations

from fastapi import APIRouter

from dmls_core.web.api import (
    actions,
    documentation,
    job,
    platform,
    predict,
    runs,
    submit,
    submit_drop,
)
from dmls_core.web.api import jobs as jobs_api
from dmls_core.web.pages import job as job_page
from dmls_core.web.pages import jobs, static
from dmls_core.web.pages import platform as platform_page
from dmls_core.web.pages import submit as submit_page

API = "/api/v1"
"""Prefix of all that answers with JSON."""

API_ROUTERS: tuple[APIRouter, ...] = (
    documentation.router,
    jobs_api.router,
    job.router,
    runs.router,
    actions.router,
    platform.router,
    submit.router,
    submit_drop.router,
    predict.router,
)
"""Mounted below ``API``; part of the OpenAPI document."""

PAGE_ROUTERS: tuple[APIRouter, ...] = (
    jobs.router,
    submit_page.router,
    job_page.router,
    platform_page.router,
    static.router,
)
"""Pages for people, at the app's root."""
