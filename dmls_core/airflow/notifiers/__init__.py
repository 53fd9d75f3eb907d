"""Notifiers send messages over the channels of ``[owner] notify``.

A notifier is one module with a subclass of ``Notifier`` and one line under the entry-point group
``dmls.notifiers``. The name of the entry point is the channel that a spec names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

Event = Literal["rejected", "failed", "deployed", "drifted", "decayed", "late"]

TIMEOUT_SECONDS = 10.0
"""Time that a service may take to answer."""


@dataclass(frozen=True, slots=True)
class Message:
    """An event of a job, for its owner.

    Attributes:
        job: ``<team>/<job>``.
        text: contains user input: never render it as a template, and escape it in markup.
        links: name -> URL of pages about it.
        email: address of the job's owner; empty: none.
    """

    event: Event
    job: str
    text: str
    links: Mapping[str, str] = field(default_factory=dict)
    email: str = ""

    @property
    def title(self) -> str:
        """Job and event, as in ``lab/iris: deployed``."""
        return f"{self.job}: {self.event}"

    @property
    def lines(self) -> str:
        """Title, text and links, one line each."""
        return "\n".join([self.title, self.text, *(f"{name}: {url}" for name, url in self.links.items())])


class Notifier(ABC):
    """Send messages over one kind of channel."""

    package: ClassVar[str] = ""
    """Package that ``send`` imports and DMLS does not require, as pip names it."""

    @abstractmethod
    def send(self, message: Message, connection_id: str) -> None:
        """Send a message within ``TIMEOUT_SECONDS``.

        ``connection_id`` is an Airflow connection that the platform team made. Whatever this method raises
        becomes a warning in the task's log, so no exception may contain a secret.

        Raises:
            ImportError: ``package`` is not installed.
        """
