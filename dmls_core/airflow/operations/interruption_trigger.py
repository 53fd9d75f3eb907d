"""The trigger that watches for killed publishers, and reloads models whose process ended.

Airflow's database stores its class path.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from dmls_core.airflow.settings import AirflowSettings, airflow_settings, open_with_connection

if TYPE_CHECKING:
    from dmls_core.monitoring.processes import ProcessWatch
    from dmls_core.monitoring.reconcile import ReconcileResult

log = logging.getLogger(__name__)


class InterruptionTrigger(BaseEventTrigger):
    """Fire when a publisher was killed while it changed what Triton serves, or a process cannot be reloaded.

    ``url`` is Triton's model repository. A change is regarded as interrupted once its record is older than
    ``PATIENCE``: a publisher that works that long keeps its lock, and the repair leaves the model to it.
    The processes of all models are asked every ``PROCESS_SECONDS`` on every server. Those that ended are
    reloaded here, since a task would start too late. Every ``COUNT_SECONDS``, the requests that the servers
    answered are added to those in the store at ``root``.
    """

    def __init__(
        self,
        url: str,
        aws_conn_id: str,
        poll_seconds: float,
        triton_http: str = "",
        triton_grpc: str = "",
        root: str = "",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.url = url
        self.aws_conn_id = aws_conn_id
        self.poll_seconds = poll_seconds
        self.triton_http, self.triton_grpc, self.root = triton_http, triton_grpc, root
        self._processes: ProcessWatch | None = None
        self._dead: list[str] = []

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "url": self.url,
                "aws_conn_id": self.aws_conn_id,
                "poll_seconds": self.poll_seconds,
                "triton_http": self.triton_http,
                "triton_grpc": self.triton_grpc,
                "root": self.root,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield ``{"models": [name, ...]}``, and for processes that stay dead ``{"processes": [why, ...]}``.

        Those that stay so are named again, less and less often.
        """
        from dmls_core.monitoring.request_counts import RequestCounter
        from dmls_core.serving.repository.intents import INTENTS, models_in  # imports NumPy

        counted = 0.0
        counter = RequestCounter()
        models, processes = _Repeated(PATIENCE), _Repeated(0)
        watching = asyncio.create_task(self._watch_processes()) if self.root and self.triton_http else None
        try:
            while True:
                try:
                    store = open_with_connection(self.url, self.aws_conn_id)
                    interrupted = models_in(await store.list_async(INTENTS))
                    now = time.monotonic()
                    if due := models.due(interrupted, now):
                        log.info("publishers were interrupted: %s", due)
                        yield TriggerEvent({"models": due})  # type: ignore[no-untyped-call]
                    if due := processes.due(self._dead, now):
                        yield TriggerEvent({"processes": due})  # type: ignore[no-untyped-call]
                    if watching and now >= counted + COUNT_SECONDS:
                        counted = now
                        root = open_with_connection(self.root, self.aws_conn_id)
                        probes = self._processes.requests if self._processes else {}
                        await asyncio.to_thread(
                            counter.record, root, self.triton_http, self.triton_grpc, probes
                        )
                except Exception:
                    # The watcher must survive an outage of the store, and addresses that cannot be resolved.
                    log.exception("cannot look at the model repository or at Triton; trying again")
                await asyncio.sleep(self.poll_seconds)
        finally:
            if watching:
                watching.cancel()

    async def _watch_processes(self) -> None:
        """Reload models whose process ended; ``_dead`` names those that could not be reloaded."""
        while True:
            started, reloaded = time.monotonic(), False
            try:
                result = await asyncio.to_thread(self._look_at_processes)
                self._dead, reloaded = result.failures, bool(result.repaired)
            except Exception:
                log.exception("cannot look at the processes of Triton; trying again")
            duration = time.monotonic() - started
            # Of a model both processes may have ended, and only the forest was reloaded.
            pause = min(max(PROCESS_SECONDS, PAUSE_FACTOR * duration), LONGEST_PAUSE)
            await asyncio.sleep(0 if reloaded else pause)

    def _look_at_processes(self) -> ReconcileResult:
        from dmls_core.monitoring.processes import ProcessWatch
        from dmls_core.serving import Repository, triton_servers

        if self._processes is None:
            root, models = (open_with_connection(url, self.aws_conn_id) for url in (self.root, self.url))
            self._processes = ProcessWatch(root, Repository(self.url, store=models))
        key = AirflowSettings.load_key()
        with triton_servers(self.triton_http, self.triton_grpc, key=key) as servers:
            return self._processes.look(servers)


class _Repeated:
    """Says when something that stays as it is is due again: after ``patience`` seconds, then ever later."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._waits: dict[str, tuple[float, float]] = {}  # name -> when it is due, and the wait after that

    def due(self, names: Iterable[str], now: float) -> list[str]:
        """Return which of the names are due, sorted."""
        new = now + self._patience, 2 * PATIENCE
        self._waits = {name: self._waits.get(name, new) for name in sorted(names)}
        due = [name for name, (at, _) in self._waits.items() if at <= now]
        for name in due:
            wait = self._waits[name][1]
            self._waits[name] = now + wait, min(2 * wait, LONGEST_WAIT)
        return due


PATIENCE = 10.0
"""Seconds before a change in progress is looked at: a deployment changes what is served within a few."""

LONGEST_WAIT = 600.0

PROCESS_SECONDS = 5.0
"""Seconds between two looks at the processes of the models."""

PAUSE_FACTOR, LONGEST_PAUSE = 10, 15.0
"""With many models, the pause between two looks is this many times as long as a look takes, up to 15 s."""

COUNT_SECONDS = 300.0
"""Seconds between two looks at the counters of requests."""


def interruption_trigger() -> InterruptionTrigger:
    """Return the trigger for this platform's model repository."""
    settings = airflow_settings()
    return InterruptionTrigger(
        settings.triton_repository,
        settings.aws_conn_id,
        settings.poll_seconds,
        settings.triton_http,
        settings.triton_grpc,
        settings.root,
    )
