"""Notifications of a job's owner, over real HTTP and SMTP servers."""

from __future__ import annotations

import asyncio
import email
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from email.policy import default
from html import escape
from types import SimpleNamespace
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from dmls_core.airflow import notifiers as module
from dmls_core.airflow.intake import intake_dag
from dmls_core.airflow.jobs.deadlines import notify_missed_deadline
from dmls_core.airflow.notifiers import connection_id, notify
from dmls_core.airflow.runs import status
from dmls_core.airflow.shards import shard_file
from dmls_core.airflow.sources import connections
from dmls_core.errors import PlatformError, SpecError, StoreError, UserError, ValidationIssue
from dmls_core.intake import read_status
from dmls_core.models import load_spec
from dmls_core.store import Registry, layout, open_store
from dmls_core.testing.notifiers import TEXT, NotifierSuite
from dmls_core.testing.stores import run_coroutine
from tests.support.webhook import Webhook, webhook

LOGGER = module.__name__
PLAIN = {"disable_ssl": True, "disable_tls": True, "retry_limit": 0}
"""An SMTP server without encryption, which is asked once."""
HOOK = {"notify": ["webhook:alerts"], "email": None}


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The connections that teams may use."""
    names = ("webhook_nowhere", "slack_default", "email_gone", "email_default")
    allowed = {"dmls_webhook_alerts": ["lab"]} | {f"dmls_{name}": ["*"] for name in names}
    monkeypatch.setattr(connections, "airflow_settings", lambda: SimpleNamespace(connections=allowed))
    return allowed


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook behind the connection ``dmls_webhook_alerts``."""
    with webhook() as hook:
        connection = {
            "conn_type": "http",
            "host": "127.0.0.1",
            "port": hook.port,
            "login": "dmls",
            "password": "secret",
        }
        monkeypatch.setenv("AIRFLOW_CONN_DMLS_WEBHOOK_ALERTS", json.dumps(connection))
        yield hook


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An SMTP server that keeps what it is given, behind the connection ``dmls_email_default``."""
    sent = SimpleNamespace(messages=[], answer="250 OK")

    class Handler:
        async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
            message = email.message_from_bytes(envelope.content, policy=default)
            sent.messages.append((envelope.rcpt_tos, message))
            return sent.answer

    loop = asyncio.new_event_loop()
    made = loop.create_server(lambda: SMTP(Handler(), hostname="localhost", loop=loop), "127.0.0.1", 0)
    # Not in this thread: the browser's event loop may run in it.
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(made, loop).result()
    sent.port = server.sockets[0].getsockname()[1]
    connection = {
        "conn_type": "smtp",
        "host": "127.0.0.1",
        "port": sent.port,
        "extra": PLAIN | {"from_email": "dmls@example.com"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_DMLS_EMAIL_DEFAULT", json.dumps(connection))
    yield sent
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def body_of(message: Message) -> str:
    (part,) = (part for part in message.walk() if part.get_content_type() == "text/html")
    return part.get_payload(decode=True).decode()


class TestWebhookNotifier(NotifierSuite):
    name = "webhook"

    @pytest.fixture
    def received(self, connection: Callable[..., None]) -> Iterator[Callable[[], list[str]]]:
        with webhook() as hook:
            connection(conn_type="http", host="127.0.0.1", port=hook.port, login="dmls")

            def _received() -> list[str]:
                for path, content, authorization in hook.heard:
                    assert path == "/"
                    assert authorization.startswith("Basic ")
                    assert set(content) == {"schema", "event", "job", "message", "links"}
                return [" ".join(map(str, [*content.values()])) for _, content, _ in hook.heard]

            yield _received


class TestSlackNotifier(NotifierSuite):
    name = "slack"

    @pytest.fixture
    def received(self, connection: Callable[..., None]) -> Iterator[Callable[[], list[str]]]:
        with webhook() as hook:
            connection(conn_type="slackwebhook", host=f"http://127.0.0.1:{hook.port}/services")
            yield lambda: [content["text"] for _, content, _ in hook.heard]


class TestEmailNotifier(NotifierSuite):
    name = "email"
    text_received = escape(TEXT)

    @pytest.fixture
    def received(self, mail: SimpleNamespace, connection: Callable[..., None]) -> Callable[[], list[str]]:
        connection(
            conn_type="smtp",
            host="127.0.0.1",
            port=mail.port,
            extra=PLAIN | {"from_email": "dmls@example.com"},
        )

        def _received() -> list[str]:
            for recipients, message in mail.messages:
                assert recipients == ["ml-team@example.com"]
                assert message["From"] == "dmls@example.com"
            return [f"{message['Subject']} {body_of(message)}" for _, message in mail.messages]

        return _received

    @pytest.fixture
    def broken(self, connection: Callable[..., None]) -> None:
        connection(conn_type="smtp", host="127.0.0.1", port=1, extra=PLAIN)


def test_a_refused_email_is_a_warning(mail, caplog):
    mail.answer = "550 no such mailbox"
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(
            {"notify": ["email"], "email": "x@example.com"}, "deployed", "lab/iris", "deployed as version 3"
        )
    assert len(mail.messages) == 1
    assert "cannot notify email that lab/iris was deployed" in caplog.text


@pytest.mark.parametrize(
    ("state", "run_type", "sent"),
    [
        ("running", "scheduled", 1),
        ("queued", "manual", 1),
        ("failed", "scheduled", 0),
        ("running", "backfill", 0),
    ],
)
def test_only_an_unfinished_run_of_the_jobs_own_misses_its_deadline(server, state, run_type, sent):
    run = {"dag_id": "dmls.lab.iris", "dag_run_id": "r__1", "state": state, "run_type": run_type}
    run_coroutine(notify_missed_deadline("lab/iris", HOOK, 3600.0, {"dag_run": run}))

    assert len(server.heard) == sent
    for _, content, _ in server.heard:
        assert content["event"] == "late"
        assert content["message"] == "The run r__1 has not finished 3,600 s after it was queued."
        assert content["links"]["airflow"].endswith("/dags/dmls.lab.iris/runs/r__1")


def test_a_channel_that_fails_is_a_warning_and_the_others_get_the_message(server, caplog, monkeypatch):
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
    assert "cannot notify webhook:nowhere" in warnings[0]
    assert "cannot notify slack" in warnings[1]
    assert "cannot notify email:gone" in warnings[2]


@pytest.mark.parametrize(
    ("teams", "team", "sent"),
    [(["lab"], "lab", True), (["*"], "shop", True), (["lab"], "shop", False), ([], "lab", False)],
)
def test_a_channel_is_of_the_teams_that_the_platform_lets_use_its_connection(
    server, caplog, allowed, teams, team, sent
):
    allowed["dmls_webhook_alerts"] = teams
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(HOOK, "deployed", f"{team}/iris", "deployed as version 3")
    assert len(server.heard) == sent
    warnings = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(warnings) == (not sent)
    for warning in warnings:
        assert f"cannot notify webhook:alerts that {team}/iris was deployed" in warning
        assert f"the team {team} may not use this connection (found dmls_webhook_alerts; " in warning
        assert "add it to `connections`" in warning


@pytest.mark.parametrize("teams", [["lab"], ["shop"]])
def test_admission_says_that_nothing_is_sent_over_a_channel_of_another_team(
    root, monkeypatch, allowed, teams
):
    allowed["dmls_webhook_alerts"] = teams
    store = open_store(str(root))
    spec = 'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[owner]\nnotify = ["webhook:alerts"]'
    store.put("incoming/lab/new/spec.toml", spec.encode())
    store.put("incoming/lab/new/a.csv", b"x,y\n" + b"".join(b"%d,%d\n" % (i, i % 2) for i in range(60)))
    monkeypatch.setattr(intake_dag, "open_root", lambda _: store)

    (outcome,) = intake_dag.AdmitOperator(task_id="admit").execute({})

    assert outcome["state"] == "accepted", outcome
    notes = [note for note in read_status(store, "lab", "new").notes if "webhook" in note]
    assert len(notes) == (teams != ["lab"])
    for note in notes:
        assert note.startswith("Nothing is sent over 'webhook:alerts' until this is changed: owner.notify: ")
        assert "the team lab may not use this connection (found dmls_webhook_alerts; ask the" in note


def test_a_webhook_that_answers_500_is_a_warning(server, caplog):
    server.code = 500
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        notify(HOOK, "drifted", "lab/iris", "2 of 4 columns drifted")
    assert len(server.heard) == 1
    assert "lab/iris was drifted" in caplog.text


def test_a_rejected_submission_is_notified_once_and_a_broken_one_blocks_no_other(
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
    monkeypatch.setattr(intake_dag, "PAUSE", 0)

    for _ in range(2):
        with pytest.raises(PlatformError, match="1 of 2 submissions have no answer: lab/alpha: "):
            intake_dag.AdmitOperator(task_id="admit").execute({})

    assert read_status(store, "lab", "zeta").state == "rejected"
    assert [(sent["event"], sent["job"]) for sent in server.contents] == [("rejected", "lab/zeta")]


@pytest.mark.parametrize(
    ("spec", "sent"),
    [
        ('model = 3\n[owner]\nnotify = ["webhook:alerts"]', 1),
        ('model = 3\n[owner]\nnotify = ["webhook:alerts"]\nname = 5', 1),
        ("model = 3\n[owner]\nnotify = 7", 0),
        ("model = 3", 0),
        ("model = ", 0),
    ],
)
def test_the_owner_of_a_first_submission_is_told_that_it_is_rejected(server, root, monkeypatch, spec, sent):
    store = open_store(str(root))
    for job in ("new", "New"):
        store.put(f"incoming/lab/{job}/spec.toml", spec.encode())
    monkeypatch.setattr(intake_dag, "open_root", lambda _: store)

    outcomes = intake_dag.AdmitOperator(task_id="admit").execute({})

    assert {outcome["state"] for outcome in outcomes} == {"rejected"}
    assert sorted(content["job"] for content in server.contents) == ["lab/New", "lab/new"][: 2 * sent]


@pytest.mark.parametrize(
    ("store_is_down", "message"),
    [
        (True, "The task search failed: cannot reach the store"),
        (False, "The task search failed, 2 errors; the first: the target has one class"),
    ],
)
def test_a_failure_is_notified_even_if_the_store_is_down(
    server, accept, bundle, root, monkeypatch, store_is_down, message
):
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

    error = UserError([ValidationIssue("the target has one class"), ValidationIssue("it is empty")])
    content = {"message": str(error), "issues": [issue.as_json() for issue in error.issues]}
    folder = layout.run_folder("lab", "iris", Registry(store).job("lab", "iris").run_key)
    store.put(folder + layout.ERROR, json.dumps(content).encode())
    if store_is_down:
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

    (sent,) = server.contents
    assert (sent["event"], sent["job"]) == ("failed", "lab/iris")
    assert sent["message"] == message


def test_a_spec_can_only_use_connections_made_for_notifications():
    assert connection_id("webhook:alerts") == "dmls_webhook_alerts"
    assert connection_id("email") == "dmls_email_default"
    head = 'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[owner]\n'
    for line, words in (
        ('notify = ["webhook:../aws_default"]', "the name of a notifier"),
        ('notify = ["webhok"]', "did you mean .?webhook"),
        ('notify = ["email"]', r"\[owner\] has no address"),
    ):
        with pytest.raises(SpecError, match=words):
            load_spec((head + line).encode())
