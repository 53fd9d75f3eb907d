"""What the registry and the store in S3 are given in tests."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from dmls_core.store import ObjectInfo, s3_listing

NOW = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


@dataclass(frozen=True)
class FakeSpec:
    content: str

    def canonical(self) -> bytes:
        return json.dumps({"schema": 1, "content": self.content}).encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.canonical()).hexdigest()


def data(etag: str, name: str = "iris.csv", job: str = "growth/iris") -> ObjectInfo:
    return ObjectInfo(f"incoming/{job}/{name}", 10, etag, NOW)


class AsyncHook:
    """What a watch of ``S3Store`` uses of Airflow's ``S3Hook``, with a client that is not asynchronous."""

    def __init__(self, client: Any, opened: list[str]) -> None:
        self._client, self._opened = client, opened

    async def get_async_conn(self) -> AbstractAsyncContextManager[Any]:
        """Return what opens a client that lists as ``client`` does, page by page."""

        @asynccontextmanager
        async def connect() -> AsyncIterator[SimpleNamespace]:
            self._opened.append("client")
            yield self.client()

        return connect()

    def client(self) -> SimpleNamespace:
        """Return the opened client."""
        real = self._client
        return SimpleNamespace(get_paginator=self._paginator, _endpoint=real._endpoint, meta=real.meta)

    def _paginator(self, operation: str) -> SimpleNamespace:
        pages = self._client.get_paginator(operation)

        async def paginate(**arguments: str) -> AsyncIterator[dict[str, Any]]:
            for page in pages.paginate(**arguments, PaginationConfig={"PageSize": s3_listing.PAGE}):
                yield page
                await asyncio.sleep(0)

        return SimpleNamespace(paginate=paginate)
