"""Problem details (RFC 9457): the JSON of the API's error responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from dmls_core.errors import ValidationIssue

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
    found = [
        problem.as_json() if isinstance(problem, ValidationIssue) else dict(problem) for problem in problems
    ]
    title = HTTPStatus(status).phrase
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return {**body, "problems": found} if found else body
