"""Triggers in the triggerer: watch for submissions, files to score, killed publishers; wait for a partition.

Airflow's database stores their class paths: moving this module breaks triggers that wait during an upgrade.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from dmls_core.airflow.settings import airflow_settings, open_with_connection
from dmls_core.errors import ServingError
from dmls_core.intake import Submission, SubmissionListing, find_partitions, partitions_between
from dmls_core.intake.unanswered import statuses_in, unanswered, without_answer
from dmls_core.spec.partitions import parse_pattern
from dmls_core.store import ObjectInfo, Store, layout

if TYPE_CHECKING:
    from airflow.sdk import Context

    from dmls_core.serving import TritonClient

log = logging.getLogger(__name__)


def event_entries(context: Context, key: str) -> list[Any]:
    """Return the entries under ``key`` of the events of a trigger below that started this run."""
    return [
        entry
        for events in (context.get("triggering_asset_events") or {}).values()
        for event in events
        for entry in (event.extra or {}).get("payload", event.extra or {}).get(key, [])
    ]


class SubmissionTrigger(BaseEventTrigger):
    """Fire when a submission appears, changes or disappears.

    After a restart of the triggerer it fires once for all; admission is idempotent and skips answered ones.
    """

    def __init__(self, root: str, aws_conn_id: str, poll_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.root = root
        self.aws_conn_id = aws_conn_id
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"root": self.root, "aws_conn_id": self.aws_conn_id, "poll_seconds": self.poll_seconds},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield ``{"changed": [[team, job], ...]}`` for each listing that differs from the one before.

        A submission without an answer is yielded again, less and less often: its intake may have failed.
        """
        seen: dict[tuple[str, str], str] = {}
        waits: dict[
            tuple[str, str], tuple[float, float]
        ] = {}  # folder -> when it is due, the wait after that
        listing, submissions = SubmissionListing(), list[Submission]()
        statuses: dict[str, ObjectInfo] = {}
        known: set[str] = set()
        while True:
            try:
                store = open_with_connection(self.root, self.aws_conn_id)
                async for latest in _with_pauses(
                    store.watch(layout.INCOMING, poll_seconds=self.poll_seconds), UNANSWERED_AFTER / 4
                ):
                    if latest is not None:
                        submissions = await asyncio.to_thread(listing.update, latest)
                        statuses = statuses_in(latest)
                    found = {(one.team, one.job): one.fingerprint for one in submissions}
                    changed = {
                        folder
                        for folder in seen.keys() | found.keys()
                        if seen.get(folder) != found.get(folder)
                    }
                    seen, now = found, time.monotonic()
                    first = now + UNANSWERED_AFTER, 2 * UNANSWERED_AFTER
                    open_ones = await asyncio.to_thread(unanswered, store, submissions, statuses, known)
                    waits = {
                        folder: first if folder in changed else waits.get(folder, first)
                        for folder in open_ones
                    }
                    due = [folder for folder, (at, _) in waits.items() if at <= now]
                    waits |= {f: (now + waits[f][1], min(2 * waits[f][1], LONGEST_WAIT)) for f in due}
                    # The answer may be newer than the listing.
                    due = await asyncio.to_thread(without_answer, store, due, found)
                    if folders := sorted({*changed, *due}):
                        log.info("submissions changed: %s; without an answer: %s", sorted(changed), due)
                        yield TriggerEvent({"changed": folders})  # type: ignore[no-untyped-call]
            except Exception:
                # The watcher must survive an outage of the store.
                log.exception("cannot list the submissions; trying again")
                await asyncio.sleep(max(self.poll_seconds, 5.0))


UNANSWERED_AFTER = 60.0
"""Seconds until a submission without an answer is handed to the intake again."""


async def _with_pauses(
    source: AsyncGenerator[Sequence[ObjectInfo], None], seconds: float
) -> AsyncGenerator[Sequence[ObjectInfo] | None, None]:
    """Yield what ``source`` yields, and ``None`` whenever it has yielded nothing for some seconds."""
    upcoming: asyncio.Future[Sequence[ObjectInfo]] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(source))
            await asyncio.wait({upcoming}, timeout=seconds)
            if not upcoming.done():
                yield None
                continue
            found, upcoming = upcoming.result(), None
            yield found
    finally:
        if upcoming is not None:
            upcoming.cancel()


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
                found = models_in(await store.list_async(INTENTS))
                now = time.monotonic()
                if due := models.due(found, now):
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

    def due(self, found: Iterable[str], now: float) -> list[str]:
        """Return which of the names found now are due, sorted."""
        new = now + self._patience, 2 * PATIENCE
        self._waits = {name: self._waits.get(name, new) for name in sorted(found)}
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


class ScoringTrigger(SubmissionTrigger):
    """Fire when a file is written to ``scoring/``; after a restart of the triggerer, once for all."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield ``{"changed": [[team, job, file], ...]}``."""
        seen: frozenset[ObjectInfo] = frozenset()
        while True:
            try:
                store = open_with_connection(self.root, self.aws_conn_id)
                async for listing in store.watch(layout.SCORING, poll_seconds=self.poll_seconds):
                    files = [layout.parse_scoring(info.key) for info in listing if info not in seen]
                    seen = frozenset(listing)
                    if changed := sorted(file for file in files if file):
                        yield TriggerEvent({"changed": changed})  # type: ignore[no-untyped-call]
            except Exception:
                # The watcher must survive an outage of the store.
                log.exception("cannot list the files to score; trying again")
                await asyncio.sleep(max(self.poll_seconds, 5.0))


class PartitionTrigger(BaseTrigger):
    """Fire once a partition of an interval exists, or when the deadline has passed.

    ``folder`` is a key, ``path`` a pattern of names with dates in ``timezone``; times are ISO 8601 and
    ``end`` is exclusive.
    """

    def __init__(
        self,
        root: str,
        aws_conn_id: str,
        folder: str,
        path: str,
        timezone: str,
        start: str,
        end: str,
        deadline: str,
        poll_seconds: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.arguments: dict[str, Any] = {
            "root": root,
            "aws_conn_id": aws_conn_id,
            "folder": folder,
            "path": path,
            "timezone": timezone,
            "start": start,
            "end": end,
            "deadline": deadline,
            "poll_seconds": poll_seconds,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield ``{"arrived": True}``, or ``{"arrived": False}`` once the deadline has passed."""
        deadline = datetime.fromisoformat(self.arguments["deadline"])
        while True:
            arrived = await self._arrived()
            left = (deadline - datetime.now(UTC)).total_seconds()
            if arrived or left <= 0:
                yield TriggerEvent({"arrived": arrived})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(min(self.arguments["poll_seconds"], left))

    async def _arrived(self) -> bool:
        given = self.arguments
        pattern = parse_pattern(given["path"])
        prefix = given["folder"] + pattern.prefix
        try:
            store = open_with_connection(given["root"], given["aws_conn_id"])
            listing = await store.list_async(prefix)
        except Exception:
            # The trigger must survive an outage of the store.
            log.exception("cannot list %s; trying again", given["path"])
            return False
        partitions = find_partitions(listing, given["folder"], pattern, given["timezone"])
        start, end = (datetime.fromisoformat(given[key]) for key in ("start", "end"))
        return bool(partitions_between(partitions, start, end))


def submission_trigger() -> SubmissionTrigger:
    """Return the trigger for this platform's root."""
    settings = airflow_settings()
    return SubmissionTrigger(settings.root, settings.aws_conn_id, settings.poll_seconds)


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


def scoring_trigger() -> ScoringTrigger:
    """Return the trigger for the files to score of this platform."""
    settings = airflow_settings()
    return ScoringTrigger(settings.root, settings.aws_conn_id, settings.poll_seconds)
