"""The channel ``webhook``: a JSON document to an HTTP endpoint, by Airflow's HTTP notifier."""

from __future__ import annotations

from typing import ClassVar

from dmls_core.airflow.notifiers import TIMEOUT_SECONDS, Message, Notifier


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
            http_conn_id=connection_id, json=content, extra_options={"timeout": TIMEOUT_SECONDS}
        ).notify({})
