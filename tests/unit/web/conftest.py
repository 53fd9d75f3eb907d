"""The app without a platform behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.api_fastapi.app import create_auth_manager
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from dmls_core.errors import ConflictError, NotFoundError, PlatformError, SpecError, ValidationIssue
from dmls_core.serving.repository.locks import BusyError
from dmls_core.web.app import create_app
from dmls_core.web.dependencies import signed_in


@pytest.fixture(scope="session")
def built_app() -> FastAPI:
    create_auth_manager()
    return create_app()


@pytest.fixture
def app(built_app: FastAPI) -> Iterator[FastAPI]:
    """Return the app, to which a test may add routes and overrides."""
    routes = list(built_app.router.routes)
    yield built_app
    built_app.router.routes[:] = routes
    built_app.dependency_overrides.clear()


@pytest.fixture
def anonymous(app: FastAPI) -> TestClient:
    """A client that has not signed in."""
    return TestClient(app, raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """A client that has signed in, of an app with some routes that fail."""
    app.dependency_overrides[signed_in] = lambda: None

    @app.get("/api/v1/raise/{kind}")
    def fail(kind: str) -> None:
        raise {
            "user": SpecError(ValidationIssue("is wrong", hint="fix it", key="n_trials", line=3)),
            "missing": NotFoundError("there is no job a/b"),
            "conflict": ConflictError("the object has changed"),
            "busy": BusyError("another deployment holds the model"),
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
