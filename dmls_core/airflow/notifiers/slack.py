"""The channel ``slack``: Airflow's notifier for incoming webhooks of Slack."""

from __future__ import annotations

from typing import Any, ClassVar

from dmls_core.airflow.notifiers import TIMEOUT_SECONDS, Message, Notifier


class SlackNotifier(Notifier):
    """Post to the Slack channel of an incoming webhook; the connection holds its URL."""

    package: ClassVar[str] = "apache-airflow-providers-slack"

    def send(self, message: Message, connection_id: str) -> None:
        """Post the message as text."""
        from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier

        # notify() and not a call: that would render the message, parts of which are a user's.
        notifier: Any = SlackWebhookNotifier(
            slack_webhook_conn_id=connection_id, text=message.lines, timeout=int(TIMEOUT_SECONDS)
        )
        notifier.notify({})
