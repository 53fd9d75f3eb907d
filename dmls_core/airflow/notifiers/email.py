"""The channel ``email``: Airflow's SMTP notifier."""

from __future__ import annotations

from html import escape
from typing import ClassVar

from dmls_core.airflow.notifiers import Message, Notifier


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
