"""Who is told what becomes of a job: over real HTTP and SMTP servers, by Airflow's own notifiers."""

from __future__ import annotations

import asyncio
import email
import json
import logging
import socket
import threading
from collections.abc import Iterator
from email.message import Message
from email.policy import default
from types import SimpleNamespace
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from dmls_core.airflow import intake_dag, status
from dmls_core.airflow import notifications as module
from dmls_core.airflow.dag_files import shard_file
from dmls_core.airflow.deadlines import notify_missed_deadline
from dmls_core.airflow.notifications import connection_id, notify
from dmls_core.errors import PlatformError, SpecError, StoreError
from dmls_core.intake import read_status
from dmls_core.models import load_spec
from dmls_core.store import open_store
from tests.webhook import Webhook, webhook

LOGGER = module.__name__
PLAIN = {"disable_ssl": True, "disable_tls": True, "retry_limit": 0}
"""An SMTP server without encryption, which is asked once."""
HOOK = {"notify": ["webhook:alerts"], "email": None}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook behind the connection ``dmls_webhook_alerts``."""
    with webhook() as told:
        connection = {
            "conn_type": "http",
            "host": "127.0.0.1",
            "port": told.port,
            "login": "dmls",
            "password": "secret",
        }
        monkeypatch.setenv("AIRFLOW_CONN_DMLS_WEBHOOK_ALERTS", json.dumps(connection))
        yield told


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


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An SMTP server that keeps what it is given, behind the connection ``dmls_email_default``."""
    told = SimpleNamespace(messages=[], answer="250 OK")

    class Handler:
        async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
            message = email.message_from_bytes(envelope.content, policy=default)
            told.messages.append((envelope.rcpt_tos, message))
            return told.answer

    loop = asyncio.new_event_loop()
    made = loop.create_server(lambda: SMTP(Handler(), hostname="localhost", loop=loop), "127.0.0.1", 0)
    server = loop.run_until_complete(made)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    connection = {
        "conn_type": "smtp",
        "host": "127.0.0.1",
        "port": server.sockets[0].getsockname()[1],
        "extra": PLAIN | {"from_email": "dmls@example.com"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_DMLS_EMAIL_DEFAULT", json.dumps(connection))
    yield told
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.run_until_complete(server.wait_closed())
    loop.close()


def body_of(message: Message) -> str:
    (part,) = (part for part in message.walk() if part.get_content_type() == "text/html")
    return part.get_payload(decode=True).decode()


def test_an_email_is_sent_and_nothing_of_a_message_is_rendered_or_is_markup(mail):
    owner = {"notify": ["email"], "email": "ml-team@example.com"}
    notify(owner, "failed", "lab/iris", "the column <b>{{ 7 * 7 }}</b> is missing", {"airflow": "http://a/x"})

    ((recipients, message),) = mail.messages
    assert recipients == ["ml-team@example.com"]
    assert message["From"] == "dmls@example.com"
    assert message["Subject"] == "lab/iris: failed"
    assert "the column &lt;b&gt;{{ 7 * 7 }}&lt;/b&gt; is missing" in body_of(message)
    assert "airflow: http://a/x" in body_of(message)


def test_an_email_that_is_refused_is_a_warning(mail, caplog):
    mail.answer = "550 no such mailbox"
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(
            {"notify": ["email"], "email": "x@example.com"}, "deployed", "lab/iris", "deployed as version 3"
        )
    assert len(mail.messages) == 1
    assert "email is not told that lab/iris was deployed" in caplog.text


@pytest.fixture
def slack(server: Webhook, monkeypatch: pytest.MonkeyPatch) -> Webhook:
    """The web server as Slack's incoming webhooks, behind the connection ``dmls_slack_ml-team``."""
    connection = {
        "conn_type": "slackwebhook",
        "host": f"http://127.0.0.1:{server.port}/services",
        "password": "T0/B0/secret",
    }
    monkeypatch.setenv("AIRFLOW_CONN_DMLS_SLACK_ML-TEAM", json.dumps(connection))
    return server


def test_slack_is_told(slack):
    owner = {"notify": ["slack:ml-team"], "email": None}
    notify(owner, "drifted", "lab/iris", "{{ 7 * 7 }} columns drifted", {"drift": "http://s3/drift.html"})

    ((path, content, _),) = slack.heard
    assert path == "/services/T0/B0/secret"
    assert content["text"] == "lab/iris: drifted\n{{ 7 * 7 }} columns drifted\ndrift: http://s3/drift.html"


def test_slack_that_refuses_is_a_warning_without_the_token(slack, caplog):
    slack.code = 403
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify({"notify": ["slack:ml-team"]}, "deployed", "lab/iris", "deployed as version 3")
    assert len(slack.heard) == 1
    (warning,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert "slack:ml-team is not told" in warning
    assert "secret" not in warning


@pytest.mark.parametrize(
    ("state", "run_type", "told"),
    [
        ("running", "scheduled", 1),
        ("queued", "manual", 1),
        ("failed", "scheduled", 0),
        ("running", "backfill", 0),
    ],
)
def test_a_run_that_takes_too_long_is_told_of(server, state, run_type, told):
    run = {"dag_id": "dmls.lab.iris", "dag_run_id": "r__1", "state": state, "run_type": run_type}
    asyncio.run(notify_missed_deadline("lab/iris", HOOK, 3600.0, {"dag_run": run}))

    assert len(server.heard) == told
    for _, content, _ in server.heard:
        assert content["event"] == "late"
        assert content["message"] == "The run r__1 has not finished 3,600 s after it was queued."
        assert content["links"]["airflow"].endswith("/dags/dmls.lab.iris/runs/r__1")


def test_what_cannot_be_told_is_a_warning_and_the_other_channels_are_told(server, caplog, monkeypatch):
    owner = {"notify": ["webhook:nowhere", "slack", "email:gone", "webhook:alerts"], "email": "x@example.com"}
    taken = socket.create_server(("127.0.0.1", 0), backlog=0)
    gone = {"conn_type": "smtp", "host": "127.0.0.1", "port": taken.getsockname()[1], "extra": PLAIN}
    taken.close()
    monkeypatch.setenv("AIRFLOW_CONN_DMLS_EMAIL_GONE", json.dumps(gone))
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(owner, "deployed", "lab/iris", "deployed as version 3")

    assert [content["event"] for _, content, _ in server.heard] == ["deployed"]
    warnings = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(warnings) == 3
    assert "webhook:nowhere is not told" in warnings[0]
    assert "slack is not told" in warnings[1]
    assert "email:gone is not told" in warnings[2]


def test_a_webhook_that_refuses_is_a_warning(server, caplog):
    server.code = 500
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(HOOK, "drifted", "lab/iris", "2 of 4 columns drifted")
    assert len(server.heard) == 1
    assert "lab/iris was drifted" in caplog.text


def test_a_rejected_drop_is_told_of_once_and_one_without_an_answer_keeps_no_other_waiting(
    server, accept, root, monkeypatch
):
    spec = (
        b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[owner]\nnotify = ["webhook:alerts"]'
    )
    accept("lab", "zeta", spec=spec)
    store = open_store(str(root))
    store.put("incoming/lab/zeta/spec.toml", b"model = 3")
    store.put("incoming/lab/alpha/_status.json/a.csv", b"lies where the answer would")
    monkeypatch.setattr(intake_dag, "open_root", lambda _: store)

    for _ in range(2):
        with pytest.raises(PlatformError, match="1 of 2 drops have no answer: lab/alpha: "):
            intake_dag.AdmitOperator(task_id="admit").execute({})

    assert read_status(store, "lab", "zeta").state == "rejected"
    assert [(told["event"], told["job"]) for told in server.contents] == [("rejected", "lab/zeta")]


def test_a_failure_is_told_where_the_store_does_not_say_why(server, accept, bundle, root, monkeypatch):
    spec = (
        b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[owner]\nnotify = ["webhook:alerts"]'
    )
    accept("lab", "iris", spec=spec)
    made = bundle()
    made.initialize()
    dag_id = "dmls.lab.iris"
    store = open_store(str(root))
    monkeypatch.setattr(status, "open_root", lambda _: store)

    def away(*_: object, **__: object) -> None:
        raise StoreError("503 Slow Down")

    monkeypatch.setattr(type(store), "read", away)
    status.report_failure(
        {
            "task_instance": SimpleNamespace(task_id="search"),
            "exception": StoreError("cannot reach the store"),
            "dag": SimpleNamespace(fileloc=str(shard_file(made.path, dag_id, 4)), dag_id=dag_id),
            "dag_run": SimpleNamespace(run_type="scheduled", conf={}),
            "run_id": "r__1",
        }
    )

    (told,) = server.contents
    assert (told["event"], told["job"]) == ("failed", "lab/iris")
    assert told["message"] == "The task search failed: cannot reach the store"


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
