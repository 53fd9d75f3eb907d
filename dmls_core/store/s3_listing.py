"""Listings of many objects in S3, in parts at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

PAGE = 1_000
"""Keys of an answer at most."""

PART = 5 * PAGE
"""Keys of a part; a shorter listing is one request after another."""


async def list_parts(client: Any, bucket: str, prefix: str, last: Sequence[str]) -> list[dict[str, Any]]:
    """Return what S3 says of each object below ``prefix``.

    The keys of the ``last`` listing say where the parts of this one begin. The server finds the keys of one
    while those of another are parsed here: a listing of 40,000 keys takes half the time.

    A part ends at the key after which the next one begins. Keys are not compared: S3 sorts them by their
    bytes, SeaweedFS folder by folder.
    """
    starts = last[PART - 1 : -1 : PART]
    ends = frozenset(starts)

    async def part(start: str) -> list[dict[str, Any]]:
        after = {"StartAfter": start} if start else {}
        found: list[dict[str, Any]] = []
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, **after)
        async for page in pages:
            items = page.get("Contents", [])
            found += items
            if ends and not ends.isdisjoint(item["Key"] for item in items):
                break
        return found

    parts = await asyncio.gather(*map(part, ["", *starts]))
    # The next part has the rest of a part's last page, too; if its last key was deleted, all that follows.
    return list({item["Key"]: item for found in parts for item in found}.values())
