"""Who is told what becomes of a job, over a real HTTP server where there is a channel for it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_core.errors import SpecError
from dmls_core.models import load_spec
from dmls_core.orchestration import notify as module
from dmls_core.orchestration.notify import connection_id, notify

LOGGER = module.__name__
HOOK = {"notify": ["webhook:alerts"], "email": None}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A webhook that keeps what it is told, behind the connection ``dmls_webhook_alerts``."""
    heard: list[tuple[str, dict[str, Any], str]] = []
    told = SimpleNamespace(heard=heard, code=200)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.path, json.loads(body), self.headers.get("Authorization", "")))
            self.send_response(told.code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    connection = {
        "conn_type": "http",
        "host": "127.0.0.1",
        "port": made.server_port,
        "login": "dmls",
        "password": "secret",
    }
    monkeypatch.setenv("AIRFLOW_CONN_DMLS_WEBHOOK_ALERTS", json.dumps(connection))
    yield told
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_webhook_is_told_and_nothing_of_a_message_is_rendered(server):
    notify(HOOK, "failed", "lab/iris", "the column {{ 7 * 7 }} is missing", {"airflow": "http://airflow/x"})

    ((path, content, authorization),) = server.heard
    assert path == "/"
    assert authorization.startswith("Basic ")
    assert content == {
        "schema": 1,
        "event": "failed",
        "job": "lab/iris",
        "message": "the column {{ 7 * 7 }} is missing",
        "links": {"airflow": "http://airflow/x"},
    }


def test_what_cannot_be_told_is_a_warning_and_the_other_channels_are_told(server, caplog):
    owner = {"notify": ["webhook:nowhere", "slack", "webhook:alerts"], "email": None}
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(owner, "deployed", "lab/iris", "deployed as version 3")

    assert [content["event"] for _, content, _ in server.heard] == ["deployed"]
    warnings = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(warnings) == 2
    assert "webhook:nowhere is not told" in warnings[0]
    assert "slack is not told" in warnings[1]


def test_a_webhook_that_refuses_is_a_warning(server, caplog):
    server.code = 500
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(HOOK, "drifted", "lab/iris", "2 of 4 columns drifted")
    assert len(server.heard) == 1
    assert "lab/iris was drifted" in caplog.text


def test_a_spec_reaches_the_connections_that_were_made_for_it_alone():
    assert connection_id("webhook:alerts") == "dmls_webhook_alerts"
    assert connection_id("email") == "dmls_email_default"
    head = 'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[owner]\n'
    for line, words in (
        ('notify = ["webhook:../aws_default"]', "email, slack or webhook"),
        ('notify = ["pager"]', "email, slack or webhook"),
        ('notify = ["email"]', "there is no address"),
    ):
        with pytest.raises(SpecError, match=words):
            load_spec((head + line).encode())
