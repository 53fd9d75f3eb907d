"""The asset watcher's trigger: sees what was dropped by listing the incoming prefix."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from dmls_core.airflow.settings import airflow_settings
from dmls_core.intake import group_submissions
from dmls_core.store import ObjectInfo, layout, open_store

log = logging.getLogger(__name__)


class SubmissionTrigger(BaseEventTrigger):
    """Fires when a submission appears, changes or goes.

    After a restart of the triggerer it fires once for all submissions; admission is idempotent and
    leaves those alone that have their answer.

    Args:
        root: ``s3://bucket/prefix`` or a folder.
        aws_conn_id: connection for S3.
        poll_seconds: time between two listings.
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
                # The store may be away for a while; the watcher must outlive that.
                log.exception("cannot list the submissions; trying again")
                await asyncio.sleep(max(self.poll_seconds, 5.0))

    async def _listings(self) -> AsyncIterator[dict[tuple[str, str], str]]:
        """Yield the fingerprint of every submission, again and again."""
        async with _lister(self.root, self.aws_conn_id) as objects:
            while True:
                yield fingerprints(await objects(layout.INCOMING))
                await asyncio.sleep(self.poll_seconds)


async def list_objects(root: str, aws_conn_id: str, prefix: str) -> list[ObjectInfo]:
    """Return the objects whose key starts with ``prefix``, without blocking the triggerer.

    Args:
        root: ``s3://bucket/prefix`` or a folder.
        aws_conn_id: connection for S3.
        prefix: relative to the root.
    """
    async with _lister(root, aws_conn_id) as objects:
        return await objects(prefix)


@asynccontextmanager
async def _lister(root: str, aws_conn_id: str) -> AsyncIterator[Callable[[str], Awaitable[list[ObjectInfo]]]]:
    """Open the root; what is given lists the objects below a prefix, as often as it is called."""
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
    """Return ``(team, job)`` -> fingerprint of what lies in that submission's folder."""
    return {(found.team, found.job): found.fingerprint for found in group_submissions(objects)}


def submission_trigger() -> SubmissionTrigger:
    """Return the trigger for this platform's root."""
    settings = airflow_settings()
    return SubmissionTrigger(settings.root, settings.aws_conn_id, settings.poll_seconds)
