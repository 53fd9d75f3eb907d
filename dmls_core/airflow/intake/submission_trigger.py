"""The trigger that watches for submissions.

Airflow's database stores its class path.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from dmls_core.airflow.settings import airflow_settings, open_with_connection
from dmls_core.errors import StoreError
from dmls_core.intake import Submission, SubmissionListing, report_check
from dmls_core.intake.unanswered import (
    Folder,
    RejectedSubmissions,
    Waits,
    statuses_in,
    unanswered,
    without_answer,
)
from dmls_core.store import ObjectInfo, Store, layout

log = logging.getLogger(__name__)


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

        A submission without an answer is yielded again, less and less often: its intake may have failed. So
        is a rejected one: the cause may lie outside of its files.
        """
        seen: dict[Folder, str] = {}
        checking_waits = Waits(CHECKING_AFTER, LONGEST_WAIT)
        unanswered_waits = Waits(UNANSWERED_AFTER, LONGEST_WAIT)
        rejected_waits = Waits(REJECTED_AFTER, LONGEST_REJECTED)
        listing, submissions = SubmissionListing(), list[Submission]()
        statuses: dict[str, ObjectInfo] = {}
        open_ones: list[Folder] = []
        rejections = RejectedSubmissions()
        while True:
            try:
                store = open_with_connection(self.root, self.aws_conn_id)
                async for latest in _with_pauses(
                    store.watch(layout.INCOMING, poll_seconds=self.poll_seconds), CHECKING_AFTER / 4
                ):
                    if latest is not None:
                        submissions = await asyncio.to_thread(listing.update, latest)
                        statuses = statuses_in(latest)
                    fingerprints = {(one.team, one.job): one.fingerprint for one in submissions}
                    changed = {
                        folder
                        for folder in seen.keys() | fingerprints.keys()
                        if seen.get(folder) != fingerprints.get(folder)
                    }
                    seen, now = fingerprints, time.monotonic()
                    rejected = await asyncio.to_thread(rejections.update, store, changed, fingerprints)
                    # Without a new listing, those that were answered before still are.
                    candidates = (
                        submissions
                        if latest is not None
                        else [one for one in submissions if (one.team, one.job) in open_ones]
                    )
                    open_ones = await asyncio.to_thread(unanswered, store, candidates, statuses)
                    open_ones = sorted(rejections.unanswered.union(open_ones))
                    checking = checking_waits.due(open_ones, changed, now)
                    await asyncio.gather(*(asyncio.to_thread(_report, store, *one) for one in checking))
                    due = unanswered_waits.due(open_ones, changed, now)
                    # The answer may be newer than the listing.
                    due = await asyncio.to_thread(without_answer, store, due, fingerprints)
                    again = rejected_waits.due(rejected, changed, now)
                    again = await asyncio.to_thread(rejections.still_rejected, store, again)
                    if folders := sorted({*changed, *due, *again}):
                        log.info(
                            "submissions changed: %s; without an answer: %s; rejected, to check again: %s",
                            *(sorted(changed), due, again),
                        )
                        yield TriggerEvent({"changed": folders})  # type: ignore[no-untyped-call]
            except Exception:
                # The watcher must survive an outage of the store.
                log.exception("cannot list the submissions; trying again")
                await asyncio.sleep(max(self.poll_seconds, 5.0))


CHECKING_AFTER = 4.0
"""Seconds until the status of a submission without an answer says that it is being checked.

The trigger writes it, and not the intake: its runs may all be busy, or Airflow.
"""

UNANSWERED_AFTER, LONGEST_WAIT = 60.0, 600.0
"""Seconds until a submission without an answer is handed to the intake again, and between later times."""

REJECTED_AFTER, LONGEST_REJECTED = 600.0, 6 * 3600.0
"""The same of a rejected submission, such as one with a source whose connection was not there yet."""


def _report(store: Store, team: str, job: str) -> None:
    with suppress(StoreError):  # the answer will meet it, too
        report_check(store, team, job)


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
            listing, upcoming = upcoming.result(), None
            yield listing
    finally:
        if upcoming is not None:
            upcoming.cancel()


def submission_trigger() -> SubmissionTrigger:
    """Return the trigger for this platform's root."""
    settings = airflow_settings()
    return SubmissionTrigger(settings.root, settings.aws_conn_id, settings.poll_seconds)
