"""Send a job's events over the channels of ``[owner] notify``.

A channel is a notifier's name, optionally with that of a connection: ``webhook:alerts`` uses the Airflow
connection ``dmls_webhook_alerts``, ``email`` uses ``dmls_email_default``. So a spec holds no secret, and can
only use connections that the platform team made for this. A failed notification is a warning in the log; it
never fails a run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from dmls_core import extensions
from dmls_core.airflow.notifiers import Event, Message, Notifier

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


def connection_id(channel: str) -> str:
    """Return the Airflow connection of a channel."""
    notifier, _, name = channel.partition(":")
    return f"dmls_{notifier}_{name or 'default'}"


def _send(message: Message, channel: str) -> None:
    notifier: Notifier = extensions.load("dmls.notifiers", channel.partition(":")[0])()
    try:
        notifier.send(message, connection_id(channel))
    except ImportError as error:
        raise ImportError(f"install {notifier.package} ({error})") from error
