"""Send a job's events over the channels of ``[owner] notify``.

A channel is a notifier's name, optionally with that of a connection: ``webhook:alerts`` uses the Airflow
connection ``dmls_webhook_alerts``, ``email`` uses ``dmls_email_default``. So a spec holds no secret, and can
only use connections that the platform team made for this, and only those that its team may use. A notifier is
a subclass of ``Notifier`` and an entry point of the group ``dmls.notifiers``, whose name is the channel.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, ClassVar, Literal

from dmls_core import extensions
from dmls_core.airflow.settings import airflow_settings
from dmls_core.airflow.sources.connections import check_allowed
from dmls_core.errors import UserError
from dmls_core.visible_text import visible, visible_lines

Event = Literal["rejected", "failed", "deployed", "drifted", "decayed", "late"]

_TIMEOUT_SECONDS = 10.0
"""Time that a service may take to answer."""


@dataclass(frozen=True, slots=True)
class Message:
    """An event of a job, for its owner.

    Attributes:
        job: ``<team>/<job>``.
        text: contains user input: never render it as a template, and escape it in markup.
        links: name -> URL of pages about it.
        email: address of the job's owner; empty: none.

    Examples:
        >>> from dmls_core.airflow.notifiers import Message
        >>> message = Message("failed", "lab/iris", "Out of memory", links={"run": "https://airflow.example"})
        >>> print(message.lines)
        lab/iris: failed
        Out of memory
        run: https://airflow.example
    """

    event: Event
    job: str
    text: str
    links: Mapping[str, str] = field(default_factory=dict)
    email: str = ""

    @property
    def title(self) -> str:
        """Job and event, as in ``lab/iris: deployed``."""
        return visible(f"{self.job}: {self.event}")

    @property
    def lines(self) -> str:
        """Title, text and links, one line each."""
        lines = [self.title, self.text, *(f"{name}: {url}" for name, url in self.links.items())]
        return visible_lines("\n".join(lines))


class Notifier(ABC):
    """Send messages over one kind of channel.

    Examples:
        >>> from dmls_core.airflow.notifiers import Message, Notifier
        >>> class PrintNotifier(Notifier):
        ...     def send(self, message: Message, connection_id: str) -> None:
        ...         print(f"{connection_id}: {message.title}")
        >>> PrintNotifier().send(Message("deployed", "lab/iris", "Version 3"), "dmls_print_default")
        dmls_print_default: lab/iris: deployed
    """

    package: ClassVar[str] = ""
    """Package that ``send`` imports and DMLS does not require, as pip names it."""

    @abstractmethod
    def send(self, message: Message, connection_id: str) -> None:
        """Send a message within 10 seconds.

        ``connection_id`` is an Airflow connection that the platform team made. Whatever this method raises
        becomes a warning in the task's log, so no exception may contain a secret.

        Raises:
            ImportError: ``package`` is not installed.
        """


class EmailNotifier(Notifier):
    """Send an email to the address of ``[owner] email``; the connection is the SMTP server."""

    package: ClassVar[str] = "apache-airflow-providers-smtp"

    def send(self, message: Message, connection_id: str) -> None:
        """Send the message; the connection's own timeout applies."""
        from airflow.providers.smtp.notifications.smtp import SmtpNotifier

        body = f"<pre>{escape(message.lines)}</pre>"
        # notify() and not a call: that would render the message, parts of which are a user's.
        SmtpNotifier(
            smtp_conn_id=connection_id, to=message.email, subject=message.title, html_content=body
        ).notify({})


class SlackNotifier(Notifier):
    """Post to the Slack channel of an incoming webhook; the connection holds its URL."""

    package: ClassVar[str] = "apache-airflow-providers-slack"

    def send(self, message: Message, connection_id: str) -> None:
        """Post the message as text."""
        from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier

        # notify() and not a call: that would render the message, parts of which are a user's.
        notifier: Any = SlackWebhookNotifier(
            slack_webhook_conn_id=connection_id, text=message.lines, timeout=int(_TIMEOUT_SECONDS)
        )
        notifier.notify({})


class WebhookNotifier(Notifier):
    """Post ``{"schema": 1, "event", "job", "message", "links"}`` to the connection's endpoint."""

    package: ClassVar[str] = "apache-airflow-providers-http"

    def send(self, message: Message, connection_id: str) -> None:
        """Post the message."""
        from airflow.providers.http.notifications.http import HttpNotifier

        content = {
            "schema": 1,
            "event": message.event,
            "job": message.job,
            "message": message.text,
            "links": dict(message.links),
        }
        # notify() and not a call: that would render the message, parts of which are a user's.
        HttpNotifier(
            http_conn_id=connection_id, json=content, extra_options={"timeout": _TIMEOUT_SECONDS}
        ).notify({})


log = logging.getLogger(__name__)


def notify(
    owner: Mapping[str, Any], event: Event, job: str, text: str, links: Mapping[str, str] | None = None
) -> None:
    """Send an event in the user's words over every channel of ``[owner]``; ``links`` maps names to URLs."""
    message = Message(event, job, text, dict(links or {}), owner.get("email") or "")
    for channel in owner.get("notify") or ():
        try:
            _send(message, channel)
        except Exception as error:  # noqa: BLE001 - whatever a notifier raises, the run goes on
            log.warning("cannot notify %s that %s was %s: %s", channel, job, event, error)
        else:
            log.info("notified %s: %s", channel, message.title)


def describe_refused(team: str, channels: Iterable[str]) -> list[str]:
    """Return a note on each channel over which a team's jobs cannot notify."""
    notes = []
    for channel in channels:
        try:
            check_allowed(team, connection_id(channel), "owner.notify")
        except UserError as error:
            notes.append(f"Nothing is sent over {channel!r} until this is changed: {error}")
    return notes


def unlisted_connections(connections: Iterable[str]) -> list[str]:
    """Return those of Airflow's connections that are made for notifiers, and that no team may use."""
    prefixes = tuple(f"dmls_{name}_" for name in extensions.names("dmls.notifiers"))
    allowed = airflow_settings().connections
    return sorted(each for each in connections if each.startswith(prefixes) and not allowed.get(each))


def connection_id(channel: str) -> str:
    """Return the Airflow connection of a channel."""
    notifier, _, name = channel.partition(":")
    return f"dmls_{notifier}_{name or 'default'}"


def _send(message: Message, channel: str) -> None:
    connection = connection_id(channel)
    check_allowed(message.job.partition("/")[0], connection, "owner.notify")
    notifier: Notifier = extensions.load("dmls.notifiers", channel.partition(":")[0])()
    try:
        notifier.send(message, connection)
    except ImportError as error:
        raise ImportError(f"install {notifier.package} ({error})") from error
