"""Tests that every notifier must pass."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from dmls_core import extensions

if TYPE_CHECKING:
    from dmls_core.airflow.notifiers import Message

if "airflow" not in sys.modules:
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="dmls-airflow-"))

TEXT = 'the column <b>"{{ 7 * 7 }}"</b> is missing'
"""A text with markup and a template, as a user's column name may be."""

URL = "https://airflow.example.com/dags/dmls.lab.iris"

SECRET = "suite-secret"  # noqa: S105 - no real one


class NotifierSuite:
    """Tests of a notifier; a subclass names it as its entry point does, and defines ``received``.

    Examples:
        The fixture ``received`` sets up the service and its Airflow connection, and returns a function that
        returns what the service has received. pytest runs every test; here, one is called by hand:

        >>> import pytest
        >>> from dmls_core.testing import NotifierSuite
        >>> class TestWebhook(NotifierSuite):
        ...     name = "webhook"
        ...     @pytest.fixture
        ...     def received(self, connection, server):  # a fixture of your own
        ...         connection(conn_type="http", host=server.url)
        ...         return lambda: server.bodies
        >>> TestWebhook().test_it_is_registered()
    """

    name: ClassVar[str]

    text_received: ClassVar[str] = TEXT
    """``TEXT`` as the service receives it; override it if the notifier escapes markup."""

    @pytest.fixture
    def connection(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Return a function that defines the channel's Airflow connection, with the password ``SECRET``.

        The team ``lab`` may use it.
        """
        from dmls_core.airflow.notifiers import connection_id
        from dmls_core.airflow.sources import connections

        name = connection_id(self.channel)
        monkeypatch.setattr(
            connections, "airflow_settings", lambda: SimpleNamespace(connections={name: ["lab"]})
        )
        variable = f"AIRFLOW_CONN_{name.upper()}"

        def _define(**fields: Any) -> None:  # noqa: ANN401 - as Airflow's Connection takes them
            monkeypatch.setenv(variable, json.dumps({"password": SECRET, **fields}))

        return _define

    @property
    def channel(self) -> str:
        return f"{self.name}:suite"

    @pytest.fixture
    def received(self) -> Callable[[], list[str]]:
        """Set up the service; return a function that returns the messages received, as text."""
        raise NotImplementedError

    @pytest.fixture
    def broken(self, connection: Callable[..., None]) -> None:
        """Define a connection that fails; override it if port 1 of this machine is no failure."""
        connection(conn_type="http", host="127.0.0.1", port=1)

    def message(self) -> Message:
        from dmls_core.airflow.notifiers import Message

        return Message("failed", "lab/iris", TEXT, {"airflow": URL}, "ml-team@example.com")

    def owner(self) -> dict[str, Any]:
        return {"notify": [self.channel], "email": "ml-team@example.com"}

    # -- the tests -------------------------------------------------------------------------------------

    def test_it_is_registered(self) -> None:
        """The entry point yields a notifier that can be built without arguments."""
        from dmls_core.airflow.notifiers import Notifier

        assert isinstance(extensions.load("dmls.notifiers", self.name)(), Notifier)

    def test_a_spec_may_name_the_channel(self) -> None:
        from dmls_core.models import load_spec

        head = 'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[owner]\nemail = "a@b.c"\n'
        assert load_spec(f'{head}notify = ["{self.channel}"]'.encode()).owner.notify == (self.channel,)

    def test_a_message_arrives_whole_and_is_not_rendered(self, received: Callable[[], list[str]]) -> None:
        """Job, event, text and links arrive; templates in the text stay text."""
        from dmls_core.airflow.notifiers import notify

        sent = self.message()
        notify(self.owner(), sent.event, sent.job, sent.text, sent.links)

        (text,) = received()
        assert sent.job in text
        assert sent.event in text
        assert self.text_received in text
        assert URL in text

    @pytest.mark.usefixtures("broken")
    def test_a_failure_is_a_warning_without_secrets(self, caplog: pytest.LogCaptureFixture) -> None:
        """A service that is down fails no run, and the log holds no password."""
        from dmls_core.airflow import notifiers

        with caplog.at_level(logging.WARNING, logger=notifiers.__name__):
            notifiers.notify(self.owner(), "deployed", "lab/iris", "deployed as version 3")

        (warning,) = [r.getMessage() for r in caplog.records if r.name == notifiers.__name__]
        assert f"cannot notify {self.channel} that lab/iris was deployed" in warning
        assert SECRET not in caplog.text
