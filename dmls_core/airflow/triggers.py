"""Triggers that run in the triggerer: watch for submissions, wait for a partition.

Airflow's database stores their class paths: moving this module breaks triggers that wait during an upgrade.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from dmls_core.airflow.settings import airflow_settings
from dmls_core.intake import find_partitions, group_submissions, partitions_between
from dmls_core.spec.partitions import parse_pattern
from dmls_core.store import ObjectInfo, layout, open_store

log = logging.getLogger(__name__)


class SubmissionTrigger(BaseEventTrigger):
    """Fire when a submission appears, changes or disappears.

    After a restart of the triggerer it fires once for all submissions. Admission is idempotent and skips
    those that it has answered.

    Args:
        root: ``s3://bucket/prefix`` or a folder.
        aws_conn_id: Airflow connection for S3.
        poll_seconds: seconds between two listings.
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
        """Yield ``{"changed": [[team, job], ...]}`` for each listing that differs from the one before."""
        seen: dict[tuple[str, str], str] = {}
        while True:
            try:
                async for found in self._listings():
                    changed = sorted(
                        folder
                        for folder in seen.keys() | found.keys()
                        if seen.get(folder) != found.get(folder)
                    )
                    seen = found
                    if changed:
                        log.info("submissions changed: %s", changed)
                        yield TriggerEvent({"changed": changed})  # type: ignore[no-untyped-call]
            except Exception:
                # The watcher must survive an outage of the store.
                log.exception("cannot list the submissions; trying again")
                await asyncio.sleep(max(self.poll_seconds, 5.0))

    async def _listings(self) -> AsyncIterator[dict[tuple[str, str], str]]:
        """Yield the fingerprints of all submissions, once per poll."""
        async with _lister(self.root, self.aws_conn_id) as objects:
            while True:
                yield fingerprints(await objects(layout.INCOMING))
                await asyncio.sleep(self.poll_seconds)


class PartitionTrigger(BaseTrigger):
    """Fire once a partition of an interval exists, or when the deadline has passed.

    Args:
        root: ``s3://bucket/prefix`` or a folder.
        aws_conn_id: Airflow connection for S3.
        folder: key of the job's folder.
        path: pattern of the partitions' names.
        timezone: time zone of the dates in names.
        start: start of the interval, ISO 8601.
        end: end of the interval, ISO 8601, exclusive.
        deadline: time at which to give up, ISO 8601.
        poll_seconds: seconds between two listings.
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
            listing = await list_objects(given["root"], given["aws_conn_id"], prefix)
        except Exception:
            # The trigger must survive an outage of the store.
            log.exception("cannot list %s; trying again", given["path"])
            return False
        partitions = find_partitions(listing, given["folder"], pattern, given["timezone"])
        start, end = (datetime.fromisoformat(given[key]) for key in ("start", "end"))
        return bool(partitions_between(partitions, start, end))


async def list_objects(root: str, aws_conn_id: str, prefix: str) -> list[ObjectInfo]:
    """Return the objects whose key, relative to ``root``, starts with ``prefix``, without blocking."""
    async with _lister(root, aws_conn_id) as objects:
        return await objects(prefix)


@asynccontextmanager
async def _lister(root: str, aws_conn_id: str) -> AsyncIterator[Callable[[str], Awaitable[list[ObjectInfo]]]]:
    """Yield a function that lists the objects below a prefix of ``root`` over one connection."""
    if not root.startswith("s3://"):
        store = open_store(root)
        yield lambda prefix: asyncio.to_thread(lambda: list(store.list(prefix)))
        return
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    bucket, _, folder = root.removeprefix("s3://").partition("/")
    base = f"{folder.rstrip('/')}/" if folder.strip("/") else ""
    hook: Any = S3Hook(aws_conn_id)
    async with await hook.get_async_conn() as client:

        async def objects(prefix: str) -> list[ObjectInfo]:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=base + prefix)
            return [
                ObjectInfo(
                    key=entry["Key"].removeprefix(base),
                    size=entry["Size"],
                    etag=entry["ETag"].strip('"'),
                    modified=entry["LastModified"],
                )
                async for page in pages
                for entry in page.get("Contents", [])
            ]

        yield objects


def fingerprints(objects: list[ObjectInfo]) -> dict[tuple[str, str], str]:
    """Return ``(team, job)`` -> fingerprint of the objects in that submission's folder."""
    return {(found.team, found.job): found.fingerprint for found in group_submissions(objects)}


def submission_trigger() -> SubmissionTrigger:
    """Return the trigger for this platform's root."""
    settings = airflow_settings()
    return SubmissionTrigger(settings.root, settings.aws_conn_id, settings.poll_seconds)
