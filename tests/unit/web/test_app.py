"""The app's security and its errors, without a platform behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.api_fastapi.app import create_auth_manager
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from dmls_core.errors import ConflictError, NotFoundError, PlatformError, SpecError, ValidationIssue
from dmls_core.web import PREFIX
from dmls_core.web.app import create_app
from dmls_core.web.mount import LazyApp
from dmls_core.web.security import access, body, signed_in
from dmls_core.web.security.headers import HEADERS

SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def app() -> FastAPI:
    create_auth_manager()
    return create_app()


@pytest.fixture
def stranger(app: FastAPI) -> TestClient:
    """Somebody who has not signed in."""
    return TestClient(app, raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """Somebody who has, at an app with some routes that fail."""
    app.dependency_overrides[signed_in] = lambda: None

    @app.get("/api/v1/raise/{kind}")
    def fail(kind: str) -> None:
        raise {
            "user": SpecError(ValidationIssue("is wrong", hint="mend it", key="n_trials", line=3)),
            "missing": NotFoundError("there is no job a/b"),
            "conflict": ConflictError("somebody was faster"),
            "platform": PlatformError("S3 is down"),
            "crash": ZeroDivisionError("secret"),
        }[kind]

    @app.get("/raise/{kind}")
    def fail_page(kind: str) -> None:
        fail(kind)

    @app.post("/api/v1/echo")
    async def echo(request: Request) -> int:
        return len(await request.body())

    yield TestClient(app, raise_server_exceptions=False)
    app.dependency_overrides.clear()


def test_no_route_answers_a_stranger(app: FastAPI, stranger: TestClient):
    asked = 0
    for route in app.routes:
        path = (
            route.path.replace("{team}", "lab")
            .replace("{name}", "iris")
            .replace("{run_id}", "r")
            .replace("{upload}", "u")
        )
        for method in route.methods:
            answer = stranger.request(method, path, headers=SAME)
            if path.startswith("/api/"):
                assert answer.status_code == 401, (method, path)
                assert answer.headers["content-type"] == "application/problem+json"
            else:
                assert answer.status_code == 303, (method, path)
                assert answer.headers["location"].startswith("/auth/login?next=")
            asked += 1
    assert asked > 30


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "https://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"}, True),
        ({}, True),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "http://testserver"}, False),
        ({"Authorization": "Bearer abc"}, False),
    ],
)
def test_another_site_cannot_change_anything(client: TestClient, headers: dict[str, str], refused: bool):
    answer = client.post("/api/v1/echo", headers=headers, content=b"x")
    assert answer.status_code == (403 if refused else 200), answer.text


def test_bodies_have_a_bound_announced_or_not(client: TestClient):
    assert client.post("/api/v1/echo", headers=SAME, content=bytes(body.BOUND)).json() == body.BOUND
    announced = client.post("/api/v1/echo", headers=SAME, content=bytes(body.BOUND + 1))
    pieces = (bytes(1 << 16) for _ in range(1 + body.BOUND // (1 << 16)))
    streamed = client.post("/api/v1/echo", headers=SAME, content=pieces)
    assert (announced.status_code, streamed.status_code) == (413, 413)
    assert announced.json()["title"] == "Request Entity Too Large" or announced.json()["status"] == 413


@pytest.mark.parametrize(
    ("kind", "status"),
    [("user", 422), ("missing", 404), ("conflict", 409), ("platform", 503), ("crash", 500)],
)
def test_errors_are_problem_details_for_programs_and_pages_for_people(
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


def test_pages_ask_airflow_what_the_api_asks(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "may", lambda *asked: asked[-1] is None)  # the DAG, and nothing of it
    for kind in ("", "/api/v1"):
        for page in ("runs", "compare?run=a&run=b" if not kind else "runs/compare?run=a&run=b", "runs/one"):
            answer = client.get(f"{kind}/jobs/lab/iris/{page}")
            assert answer.status_code == 403, (kind, page)
    for page in ("/jobs/lab/iris", "/jobs/lab/iris/history", "/api/v1/jobs/lab/iris/events"):
        assert client.get(page).status_code == 403, page


def test_a_users_mistake_tells_its_place(client: TestClient):
    (problem,) = client.get("/api/v1/raise/user").json()["problems"]
    assert (problem["key"], problem["line"], problem["hint"]) == ("n_trials", 3, "mend it")


def test_no_inline_script_or_style_gets_past_the_policy():
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'self'"


def test_static_files_are_a_fixed_set(client: TestClient):
    assert client.get("/static/app.css").headers["content-type"].startswith("text/css")
    for name in ("nothing.css", "..%2Fapp.py", "%2e%2e%2fapp.py"):
        assert client.get(f"/static/{name}").status_code == 404


def test_every_template_is_escaped_and_has_nothing_inline():
    from dmls_core.web.templating import TEMPLATES, environment

    assert environment().autoescape is True
    for file in TEMPLATES.glob("*.html"):
        text = file.read_text()
        assert "| safe" not in text, file
        assert "style=" not in text, file
        assert "onclick" not in text, file
        assert "<script>" not in text, file


def test_the_plugin_builds_the_app_at_its_first_request(app: FastAPI):
    outer = FastAPI()
    outer.mount(PREFIX, LazyApp())
    answer = TestClient(outer).get(f"{PREFIX}/api/v1/openapi.json")
    assert answer.status_code == 401
