"""The app as the plugin mounts it."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.testclient import TestClient

from dmls_core.web import PREFIX
from dmls_core.web.plugin import LazyApp


def test_the_app_is_built_at_the_first_request(app: FastAPI):
    outer = FastAPI()
    outer.mount(PREFIX, LazyApp("dmls_core.web.app:create_app"))
    answer = TestClient(outer).get(f"{PREFIX}/api/v1/openapi.json")
    assert answer.status_code == 401
