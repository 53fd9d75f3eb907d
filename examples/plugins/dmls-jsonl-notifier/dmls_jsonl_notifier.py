"""Notifier for DMLS that appends each message to a file, one line of JSON each."""

from __future__ import annotations

import json
from pathlib import Path

from airflow.sdk import Connection

from dmls_core.airflow.notifiers import Message, Notifier


class JsonLinesNotifier(Notifier):
    """Appends to the file that ``path`` in the connection's extra names."""

    def send(self, message: Message, connection_id: str) -> None:
        path = Connection.get(connection_id).extra_dejson["path"]
        line = {
            "event": message.event,
            "job": message.job,
            "text": message.text,
            "links": dict(message.links),
        }
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
