"""Listings of many objects in S3, again and again: in parts at the same time, unchanged pages unparsed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from dmls_core.store.base import ObjectInfo

PAGE = 1_000
"""Keys of an answer at most."""

PART = 5 * PAGE
"""Keys of a part; a shorter listing is one request after another."""

_DIGEST = "dmls-digest"
"""In an answer with objects: identifies them."""


class RepeatedListing:
    """Lists the objects below ``prefix`` whenever asked; ``info`` makes an item of S3 an ``ObjectInfo``.

    ``client`` is aiobotocore's and used for nothing else.

    The server finds the keys of one part while those of another are parsed here, and a page that has not
    changed since the last listing is not parsed again.
    """

    def __init__(
        self, client: Any, bucket: str, prefix: str, info: Callable[[Mapping[str, Any]], ObjectInfo]
    ) -> None:
        self._pages = client.get_paginator("list_objects_v2")
        self._bucket, self._prefix = bucket, prefix
        self._info = info
        self._starts: list[str] = []  # each part but the first begins after one of these keys
        self._page_by_digest: dict[str, list[tuple[str, ObjectInfo]]] = {}
        client.meta.events.register("before-parse.s3.ListObjectsV2", self._before_parse)

    async def objects(self) -> tuple[ObjectInfo, ...]:
        """Return the objects."""
        ends = frozenset(self._starts)
        starts = "", *self._starts
        parts = await asyncio.gather(*(self._part(start, ends) for start in starts))
        self._page_by_digest = {digest: page for part in parts for digest, page in part if digest}
        # The next part repeats the rest of a last page; if a last key was deleted, all that follows.
        listed = {key: info for part in parts for _, page in part for key, info in page}
        longest = max(sum(len(page) for _, page in part) for part in parts)
        if longest > 2 * PART or not ends <= listed.keys():
            # Otherwise they stay, so that the pages of other parts stay as they are.
            self._starts = list(listed)[PART - 1 : -1 : PART]
        return tuple(listed.values())

    async def _part(self, start: str, ends: frozenset[str]) -> list[tuple[str, list[tuple[str, ObjectInfo]]]]:
        """Return the pages with their digests until the one that has the key after which a part begins.

        Keys are not compared: S3 sorts them by their bytes, SeaweedFS folder by folder.
        """
        after = {"StartAfter": start} if start else {}
        pages = []
        async for answer in self._pages.paginate(Bucket=self._bucket, Prefix=self._prefix, **after):
            digest = answer.get(_DIGEST, "")
            page = self._page_by_digest.get(digest)
            if page is None:
                page = [(item["Key"], self._info(item)) for item in answer.get("Contents", [])]
            pages.append((digest, page))
            if ends and any(key in ends for key, _ in page):
                break
        return pages

    def _before_parse(
        self, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
    ) -> None:
        """Add the digest of the objects to an answer; take them out if they are known."""
        body = response_dict["body"]
        first, last = body.find(b"<Contents>"), body.rfind(b"</Contents>")
        if not 0 <= first < last:
            return
        digest = hashlib.sha256(body[first:last]).hexdigest()
        customized_response_dict[_DIGEST] = digest
        if digest in self._page_by_digest:
            response_dict["body"] = body[:first] + body[last + len(b"</Contents>") :]
