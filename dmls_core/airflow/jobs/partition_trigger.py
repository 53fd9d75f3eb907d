"""The trigger that waits for the partition of an interval.

Airflow's database stores its class path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dmls_core.airflow.settings import open_with_connection
from dmls_core.intake import find_partitions, partitions_between
from dmls_core.spec.partitions import parse_pattern

log = logging.getLogger(__name__)


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
        arguments = self.arguments
        pattern = parse_pattern(arguments["path"])
        prefix = arguments["folder"] + pattern.prefix
        try:
            store = open_with_connection(arguments["root"], arguments["aws_conn_id"])
            listing = await store.list_async(prefix)
        except Exception:
            # The trigger must survive an outage of the store.
            log.exception("cannot list %s; trying again", arguments["path"])
            return False
        partitions = find_partitions(listing, arguments["folder"], pattern, arguments["timezone"])
        start, end = (datetime.fromisoformat(arguments[key]) for key in ("start", "end"))
        return bool(partitions_between(partitions, start, end))
