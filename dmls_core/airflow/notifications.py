"""Tell those whom ``[owner] notify`` names what became of a job, by Airflow's own notifiers.

A channel is ``email``, ``slack`` or ``webhook``, or one of these with a name behind a colon. It goes through
the Airflow connection ``dmls_<channel>_<name>`` (``dmls_email_default`` without a name): a spec can use the
connections that the platform's team made for this, no other, and holds no secret.

Nothing here fails a run: a message that cannot be sent is a warning in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any, Literal

log = logging.getLogger(__name__)

Event = Literal["rejected", "failed", "deployed", "drifted", "decayed", "late"]

SECONDS = 10.0
"""Time that a webhook or Slack may take to answer; the connection of an SMTP server has its own."""

EMAIL, SLACK, WEBHOOK = "email", "slack", "webhook"
PROVIDERS = {EMAIL: "smtp", SLACK: "slack", WEBHOOK: "http"}
"""Channel -> Airflow provider that it needs."""


def notify(
    owner: Mapping[str, Any], event: Event, job: str, message: str, links: Mapping[str, str] | None = None
) -> None:
    """Send a message over every channel that a spec names.

    Args:
        owner: ``[owner]`` of the spec, as JSON.
        event: what happened.
        job: ``<team>/<job>``.
        message: the same in the user's words.
        links: name -> address, of pages about it.
    """
    for channel in owner.get("notify") or ():
        try:
            _send(channel, owner.get("email") or "", event, job, message, dict(links or {}))
        except ImportError:
            provider = PROVIDERS[channel.partition(":")[0]]
            log.warning("%s is not told: install apache-airflow-providers-%s", channel, provider)
        except Exception as error:  # noqa: BLE001 - whatever a channel does, the run goes on
            log.warning("%s is not told that %s was %s: %s", channel, job, event, error)
        else:
            log.info("told %s: %s %s", channel, job, event)


def connection_id(channel: str) -> str:
    """Return the Airflow connection of a channel."""
    kind, _, name = channel.partition(":")
    return f"dmls_{kind}_{name or 'default'}"


def _send(channel: str, email: str, event: Event, job: str, message: str, links: dict[str, str]) -> None:
    kind, connection = channel.partition(":")[0], connection_id(channel)
    title = f"{job}: {event}"
    # ``notify`` and not a call of the notifier: that would render the message, parts of which are a user's.
    if kind == WEBHOOK:
        http = import_module("airflow.providers.http.notifications.http")
        content = {"schema": 1, "event": event, "job": job, "message": message, "links": links}
        options = {"timeout": SECONDS}
        http.HttpNotifier(http_conn_id=connection, json=content, extra_options=options).notify({})
    elif kind == SLACK:
        slack = import_module("airflow.providers.slack.notifications.slack_webhook")
        text = _lines(title, message, links)
        notifier = slack.SlackWebhookNotifier(
            slack_webhook_conn_id=connection, text=text, timeout=int(SECONDS)
        )
        notifier.notify({})
    else:
        smtp = import_module("airflow.providers.smtp.notifications.smtp")
        body = f"<pre>{escape(_lines(title, message, links))}</pre>"
        smtp.SmtpNotifier(smtp_conn_id=connection, to=email, subject=title, html_content=body).notify({})


def _lines(title: str, message: str, links: Mapping[str, str]) -> str:
    lines: Sequence[str] = [title, message, *(f"{name}: {url}" for name, url in links.items())]
    return "\n".join(lines)
