"""The one interface over S3 and a local folder."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from dmls_core.errors import StoreError

CHUNK = 1 << 20
"""Bytes moved at a time when an object is streamed."""

# Some servers take a backslash for a slash.
_UNFIT = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\\]")

MAX_KEY_BYTES = 1024
"""S3's own limit, held in a folder as well."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing shows it.

    Attributes:
        key: relative to the store's root, without a leading slash.
        size: bytes.
        etag: changes when the content does; without quotes.
        modified: when it was last written, UTC.
    """

    key: str
    size: int
    etag: str
    modified: datetime


class Store(ABC):
    """Objects under a root, S3 or a folder; every key is relative to that root.

    An instance may be shared between threads. A writer never leaves a half-written object behind: a
    reader sees the old content or the new one.

    Every method raises ``StoreError`` when the service or the file system fails.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        """``s3://bucket/prefix`` or the folder's absolute path."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo | None:
        """Return what is known of an object, or ``None`` where there is none."""

    @abstractmethod
    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, ObjectInfo]:
        """Return an object's content and the facts that belong to exactly that content.

        Args:
            key: the object.
            limit: read the first ``limit`` bytes only (``ObjectInfo.size`` stays the whole size).

        Raises:
            ObjectMissingError: there is no such object.
        """

    @abstractmethod
    def open(self, key: str, *, etag: str | None = None) -> BinaryIO:
        """Open an object as a forward-only stream; the caller closes it.

        Raises:
            ObjectMissingError: there is no such object.
            ConflictError: ``etag`` is given and the object's differs.
        """

    @abstractmethod
    def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Write an object whatever was there; the type follows from the key's ending by default."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> ObjectInfo:
        """Write an object that must not exist yet.

        Raises:
            ConflictError: it exists already.
        """

    @abstractmethod
    def replace(self, key: str, data: bytes, etag: str) -> ObjectInfo:
        """Write an object that must still have this ``etag``.

        Raises:
            ConflictError: it has changed or is gone.
        """

    @abstractmethod
    def upload(self, key: str, path: Path) -> ObjectInfo:
        """Write a local file's content, in parts and bounded memory where it is large."""

    @abstractmethod
    def download(self, key: str, path: Path, *, etag: str | None = None) -> ObjectInfo:
        """Write an object's content to ``path``, which appears whole or not at all.

        Raises:
            ObjectMissingError: there is no such object.
            ConflictError: ``etag`` is given and the object's differs.
        """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``, a plain string; in no order."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""

    def get(self, key: str) -> bytes:
        """Return an object's whole content.

        Raises:
            ObjectMissingError: there is no such object.
        """
        return self.read(key)[0]


def check_key(key: str) -> str:
    """Return ``key`` if every store can hold it.

    Raises:
        StoreError: it is empty, too long, or has an empty, ``.`` or ``..`` part, a backslash, or controls.
    """
    parts = key.split("/")
    if any(part in {"", ".", ".."} for part in parts) or _UNFIT.search(key):
        raise StoreError(
            f"{key!r} cannot be a key: parts between slashes must be plain names, "
            "without backslashes and control characters"
        )
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{key!r} cannot be a key: it is not valid Unicode") from error
    if len(encoded) > MAX_KEY_BYTES:
        raise StoreError(f"{key[:80]!r}... cannot be a key: longer than {MAX_KEY_BYTES} bytes")
    return key


def file_sha256(stream: BinaryIO) -> str:
    """Return the hex SHA-256 of what is left of ``stream``."""
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
