"""The trigger that watches for killed publishers and ended shared processes.

Airflow's database stores its class path.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from dmls_core.airflow.settings import airflow_settings, open_with_connection
from dmls_core.errors import ServingError
from dmls_core.store import Store

if TYPE_CHECKING:
    from dmls_core.serving import TritonClient

log = logging.getLogger(__name__)


class InterruptionTrigger(BaseEventTrigger):
    """Fire when a publisher was killed while it changed what Triton serves, or a shared process ended.

    ``url`` is Triton's model repository. A change is regarded as interrupted once its record is older than
    ``PATIENCE``: a publisher that works that long keeps its lock, and the repair leaves the model to it.
    The process that small models share is asked every ``PROCESS_SECONDS`` on every server. Every
    ``COUNT_SECONDS``, the requests that the servers answered are added to those in the store at ``root``.
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
        """Yield ``{"models": [name, ...]}``, and for processes that ended ``{"processes": [address, ...]}``.

        Those that stay so are named again, less and less often.
        """
        from dmls_core.monitoring.request_counts import RequestCounter
        from dmls_core.serving.repository.intents import INTENTS, models_in  # imports NumPy

        asked = counted = 0.0
        counter = RequestCounter()
        models, processes = _Repeated(PATIENCE), _Repeated(0)
        while True:
            try:
                store = open_with_connection(self.url, self.aws_conn_id)
                interrupted = models_in(await store.list_async(INTENTS))
                now = time.monotonic()
                if due := models.due(interrupted, now):
                    log.info("publishers were interrupted: %s", due)
                    yield TriggerEvent({"models": due})  # type: ignore[no-untyped-call]
                if now >= asked + PROCESS_SECONDS:
                    asked = now
                    ended = await asyncio.to_thread(self._ended_processes, store)
                    if ended := processes.due(ended, now):
                        log.warning("the shared process ended at %s", ended)
                        yield TriggerEvent({"processes": ended})  # type: ignore[no-untyped-call]
                if self.root and self.triton_http and now >= counted + COUNT_SECONDS:
                    counted = now
                    root = open_with_connection(self.root, self.aws_conn_id)
                    await asyncio.to_thread(counter.record, root, self.triton_http, self.triton_grpc)
            except Exception:
                # The watcher must survive an outage of the store, and addresses that cannot be resolved.
                log.exception("cannot look at the model repository or at Triton; trying again")
            await asyncio.sleep(self.poll_seconds)

    def _ended_processes(self, store: Store) -> list[str]:
        """Return the servers that answer, but whose shared process does not."""
        from dmls_core.serving import triton_servers
        from dmls_core.serving.repository.shared_process import has_shared_process, process_runs

        # From S3 no model shares a process.
        if self.url.startswith("s3://") or not self.triton_http or not has_shared_process(store):
            return []

        def ended(client: TritonClient) -> bool:
            with suppress(ServingError), client.again(PROCESS_TIMEOUT) as other:
                return not process_runs(other)
            return False

        with (
            triton_servers(self.triton_http, self.triton_grpc) as servers,
            ThreadPoolExecutor(len(servers)) as threads,
        ):
            answers = zip(servers, threads.map(ended, servers), strict=True)
            return [client.addresses["http"] for client, has_ended in answers if has_ended]


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

PROCESS_SECONDS, PROCESS_TIMEOUT = 20.0, 10.0
"""Seconds between two questions to the shared processes, and until one must have answered."""


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
