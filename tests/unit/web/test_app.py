"""Access to routes and pages, and static files."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dmls_core.web import dependencies
from dmls_core.web.dependencies import check_site_access
from dmls_core.web.json_requests import JsonRoute

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
JOB = "/api/v1/jobs/{team}/{name}"
REST_PATHS = {
    "/api/v1/jobs": {"get"},
    JOB: {"get"},
    f"{JOB}/versions": {"get"},
    f"{JOB}/events": {"get"},
    f"{JOB}/drift": {"get"},
    f"{JOB}/runs": {"get", "post"},
    f"{JOB}/runs/compare": {"get"},
    f"{JOB}/runs/{{run_id}}": {"get"},
    f"{JOB}/runs/{{run_id}}/log": {"get"},
    f"{JOB}/runs/{{run_id}}/report": {"get"},
    f"{JOB}/runs/{{run_id}}/validation": {"get"},
    **{
        f"{JOB}/{command}": {"post"}
        for command in ("deploy", "decline", "rollback", "undeploy", "pause", "retire")
    },
    f"{JOB}/served": {"get"},
    f"{JOB}/spec": {"get", "put"},
    f"{JOB}/signature": {"get"},
    f"{JOB}/predict": {"post"},
    "/api/v1/predictions/{team}/{name}": {"post"},
    f"{JOB}/keys": {"get", "post"},
    f"{JOB}/keys/{{key_id}}": {"delete"},
    "/api/v1/teams/{team}/keys": {"get", "post"},
    "/api/v1/teams/{team}/keys/{key_id}": {"delete"},
    "/api/v1/scores/{team}/{name}": {"post"},
    "/api/v1/scoring/{team}/{name}": {"get"},
    "/api/v1/scoring/{team}/{name}/check": {"post"},
    "/api/v1/scoring/{team}/{name}/file": {"delete", "get", "put"},
    "/api/v1/scoring/{team}/{name}/again": {"post"},
    "/api/v1/scoring/{team}/{name}/result": {"get"},
    "/api/v1/catalogue": {"get"},
    "/api/v1/sniff": {"post"},
    "/api/v1/specs/toml": {"post"},
    "/api/v1/specs/check": {"post"},
    "/api/v1/drops/{team}": {"get"},
    "/api/v1/drops/{team}/{name}": {"get"},
    "/api/v1/drops/{team}/{name}/sniff": {"get"},
    "/api/v1/drops/{team}/{name}/estimate": {"post"},
    "/api/v1/drops/{team}/{name}/spec": {"put"},
    "/api/v1/drops/{team}/{name}/uploads": {"post"},
    "/api/v1/drops/{team}/{name}/uploads/{upload}": {"delete"},
    "/api/v1/drops/{team}/{name}/uploads/{upload}/finish": {"post"},
    "/api/v1/drops/{team}/{name}/uploads/{upload}/{number}": {"put"},
    "/api/v1/platform": {"get"},
    "/api/v1/platform/capacity": {"get"},
    "/api/v1/platform/doctor": {"get"},
    "/api/v1/queue": {"get"},
}
"""Users' scripts call these."""


def test_the_paths_of_the_rest_api_are_a_contract(app: FastAPI):
    assert {path: set(operations) for path, operations in app.openapi()["paths"].items()} == REST_PATHS


JSON = {"Content-Type": "application/json"}


def test_every_route_requires_a_login(app: FastAPI, anonymous: TestClient):
    requested = 0
    for route in app.routes:
        path = (
            route.path.replace("{team}", "lab")
            .replace("{name}", "iris")
            .replace("{run_id}", "r")
            .replace("{upload}", "u")
            .replace("{key_id}", "0123456789ab")
        )
        for method in route.methods:
            # Refused unread: the body is no JSON, and FastAPI would say so first.
            answer = anonymous.request(method, path, headers=SAME_ORIGIN | JSON, content=b"{")
            if path.startswith("/api/"):
                assert answer.status_code == 401, (method, path)
                assert answer.headers["content-type"] == "application/problem+json"
            else:
                assert answer.status_code == 303, (method, path)
                assert answer.headers["location"].startswith("/auth/login?next=")
            requested += 1
    assert requested > 30


def test_pages_require_the_access_that_the_api_requires(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        dependencies, "may", lambda *arguments: arguments[-1] is None
    )  # access to the DAG, but not to its runs or events
    for kind in ("", "/api/v1"):
        for page in ("runs", "compare?run=a&run=b" if not kind else "runs/compare?run=a&run=b", "runs/one"):
            answer = client.get(f"{kind}/jobs/lab/iris/{page}")
            assert answer.status_code == 403, (kind, page)
    for page in ("/jobs/lab/iris", "/jobs/lab/iris/history", "/api/v1/jobs/lab/iris/events"):
        assert client.get(page).status_code == 403, page


@pytest.mark.usefixtures("feather")
def test_the_files_of_a_plug_ins_format_can_be_chosen(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dependencies, "may", lambda *_: True)
    page = client.get("/jobs/lab/iris/try")
    assert page.status_code == 200
    (accepted,) = re.findall(r'type="file" accept="([^"]+)"', page.text)
    assert {".csv", ".parquet", ".feather", ".gz"} <= set(accepted.split(","))


def test_every_json_body_is_parsed_strictly(app: FastAPI, client: TestClient):
    assert all(isinstance(route, JsonRoute) for route in app.routes if getattr(route, "body_field", None))
    app.dependency_overrides[check_site_access] = lambda: None
    for body, detail in (
        ('{"toml": "", "toml": "x"}', "the key 'toml' occurs twice"),
        ('{"toml": "", "columns": [1e999]}', "1e999 is too large a number"),
        ('{"document": {"n_trials": NaN}}', "NaN is not a number of JSON"),
        ('{"tomls": "x"}', "body.tomls: is not a key of this request (write 'toml')"),
    ):
        headers = {**SAME_ORIGIN, "Content-Type": "application/json"}
        answer = client.post("/api/v1/specs/check", content=body, headers=headers)
        assert (answer.status_code, detail in answer.json()["detail"]) == (422, True), answer.text


def test_only_known_static_files_are_served(client: TestClient):
    assert client.get("/static/app.css").headers["content-type"].startswith("text/css")
    for name in ("nothing.css", "..%2Fapp.py", "%2e%2e%2fapp.py"):
        assert client.get(f"/static/{name}").status_code == 404
