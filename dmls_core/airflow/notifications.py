"""Notify the channels of ``[owner] notify`` of what became of a job.

A channel is the name of a notifier, or that with a colon and the name of a connection: ``webhook:alerts``.
It uses the Airflow connection ``dmls_<notifier>_<name>`` (``dmls_email_default`` without a name). So a spec
holds no secret, and can only use connections that the platform team made for this.

A notification never fails a run: a message that cannot be sent is a warning in the log.
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
    """Send a message over every channel that a spec names.

    Args:
        owner: ``[owner]`` of the spec, as JSON.
        event: what happened.
        job: ``<team>/<job>``.
        text: the event in the user's words.
        links: name -> URL of pages about it.
    """
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
