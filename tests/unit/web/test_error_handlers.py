"""Errors as problem details and as pages."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from dmls_core.web.middleware import HEADERS


@pytest.mark.parametrize(
    ("kind", "status"),
    [("user", 422), ("missing", 404), ("conflict", 409), ("busy", 409), ("platform", 503), ("crash", 500)],
)
def test_the_api_responds_with_problem_details_and_pages_with_an_error_page(
    client: TestClient, kind: str, status: int
):
    answer = client.get(f"/api/v1/raise/{kind}")
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    page = client.get(f"/raise/{kind}")
    assert page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert "secret" not in answer.text + page.text
    for found in (answer, page):
        assert {name: found.headers[name] for name in HEADERS} == HEADERS


def test_problem_details_contain_the_place_of_an_error(client: TestClient):
    (problem,) = client.get("/api/v1/raise/user").json()["problems"]
    assert (problem["key"], problem["line"], problem["hint"]) == ("n_trials", 3, "fix it")
