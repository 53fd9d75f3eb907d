"""Airflow's own REST API, called within the process in the name of whoever asks.

Airflow checks who may, does the work as on its own page, and writes its audit log: with the user's name.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
from fastapi import HTTPException, Request

from dmls_core.web import AIRFLOW

SECONDS = 30.0
PASSED_ON = ("authorization", "cookie")


class AirflowCalls:
    """Calls to ``/api/v2`` with the credentials of a request.

    Args:
        request: the one that is answered.
    """

    def __init__(self, request: Request) -> None:
        self._app: Any = request.scope[AIRFLOW]
        self._headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}

    async def call(self, method: str, path: str, json: object = None) -> Any:
        """Return what Airflow answers.

        Args:
            method: of HTTP.
            path: below ``/api/v2``; names in it are quoted by ``part``.
            json: the body.

        Raises:
            HTTPException: Airflow refuses; with its status and its reason.
        """
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://airflow", timeout=SECONDS, headers=self._headers
        ) as client:
            answer = await client.request(method, f"/api/v2{path}", json=json)
        if answer.is_success:
            return answer.json() if answer.content else None
        raise HTTPException(answer.status_code, f"Airflow: {_reason(answer)}")


def part(name: str) -> str:
    """Return a name as one part of a path."""
    return quote(name, safe="")


def _reason(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase
    if isinstance(detail, dict):
        return str(detail.get("reason") or detail.get("message") or detail)
    if isinstance(detail, list):
        return "; ".join(str(entry.get("msg", entry)) for entry in detail)
    return str(detail)
