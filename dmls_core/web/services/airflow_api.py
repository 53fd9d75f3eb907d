"""Call Airflow's REST API in-process with the credentials of the user's request.

Airflow checks the user's access and records the user in its audit log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
from starlette.exceptions import HTTPException

_SECONDS = 30.0
_FORWARDED_HEADERS = ("authorization", "cookie")

GROUP, END = "::group::", "::endgroup::"
"""Markers by which Airflow's own page folds lines of a log."""

_SOURCES = f"{GROUP}Log message source details"


class AirflowApi:
    """Client of ``/api/v2`` that forwards the credentials in ``headers``, those of the user's request."""

    def __init__(self, app: Any, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = {name: headers[name] for name in _FORWARDED_HEADERS if name in headers}

    async def call(self, method: str, path: str, json: object = None) -> Any:
        """Return the JSON of Airflow's response to a path below ``/api/v2``, its names escaped by ``quoted``.

        Raises:
            HTTPException: Airflow refuses; with its status code and its reason.
        """
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self._app),
            base_url="http://airflow",
            timeout=_SECONDS,
            headers=self._headers,
        ) as client:
            response = await client.request(method, f"/api/v2{path}", json=json)
        if response.is_success:
            return response.json() if response.content else None
        raise HTTPException(response.status_code, f"Airflow: {_reason(response)}")


def quoted(name: str) -> str:
    """Escape a name as one segment of a path."""
    return quote(name, safe="")


def _reason(response: httpx.Response) -> str:
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase
    if isinstance(detail, dict):
        return str(detail.get("reason") or detail.get("message") or detail)
    if isinstance(detail, list):
        return "; ".join(str(entry.get("msg", entry)) for entry in detail)
    return str(detail)


async def read_log_tail(airflow: AirflowApi, dag_id: str, run_id: str, task_id: str, lines: int) -> list[str]:
    """Return the last lines of a task's latest try (first mapped instance); empty before it starts."""
    run = f"/dags/{quoted(dag_id)}/dagRuns/{quoted(run_id)}/taskInstances"
    tries = await airflow.call("GET", f"{run}?task_id={quoted(task_id)}&order_by=map_index&limit=1")
    attempt = next((task for task in tries["task_instances"] if task["try_number"]), None)
    if attempt is None:
        return []
    path = f"{run}/{quoted(task_id)}/logs/{attempt['try_number']}?map_index={attempt['map_index']}"
    log = await airflow.call("GET", f"{path}&full_content=true")
    return log_lines(log["content"])[-lines:]


def log_lines(entries: Iterable[dict[str, Any] | str]) -> list[str]:
    """Return the lines of a log, without Airflow's fold markers and its list of log sources."""
    lines: list[str] = []
    in_sources = False
    for entry in entries:
        event = entry if isinstance(entry, str) else str(entry.get("event", ""))
        if event.startswith((GROUP, END)):
            in_sources = event.startswith(_SOURCES)
        elif not in_sources:
            lines += _lines(entry)
    return lines


def _lines(entry: dict[str, Any] | str) -> list[str]:
    """Return the lines of one message, each with its time, and of its exceptions."""
    if isinstance(entry, str):
        return entry.splitlines()
    time = str(entry.get("timestamp") or "")[11:19]
    lines = str(entry.get("event", "")).splitlines() or [""]
    for detail in entry.get("error_detail") or ():
        lines.append(f"{detail.get('exc_type', '')}: {detail.get('exc_value', '')}")
    return [f"{time} {line}".strip() for line in lines]
