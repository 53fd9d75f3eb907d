"""The interface of a store: objects under a root, addressed by keys."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

from dmls_core.errors import PlatformError, StoreError

CHUNK = 1 << 20

MAX_PARTS = 10_000

_MAX_KEY_BYTES = 1024
"""The limit of S3, which every store keeps."""

# Some servers treat a backslash as a slash.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\\]")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Metadata of an object: key, size in bytes, ETag of the content without quotes, last write in UTC."""

    key: str
    size: int
    etag: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class Access:
    """What credentials allow.

    Attributes:
        read: keys, or folders with a slash at the end, that may be read.
        write: folders that may be listed, read, written and deleted from.
    """

    read: tuple[str, ...]
    write: tuple[str, ...]


class Store(ABC):
    """Objects under a root; every key is relative to that root.

    The scheme of its URL selects a store among the entry points ``dmls.stores``, and tested by
    ``StoreSuite`` in ``dmls_core.testing.stores``. Threads may share an instance. Writes are atomic: a reader
    sees the old content or the new one, never a part. Every method raises ``StoreError`` when the service or
    file system fails.

    Examples:
        >>> from dmls_core.store import open_store
        >>> store = open_store("objects")  # a folder; in production, s3://bucket/prefix
        >>> created = store.create("incoming/lab/iris/spec.toml", b"n_trials = 5")
        >>> content, info = store.read("incoming/lab/iris/spec.toml")
        >>> content, info.etag == created.etag
        (b'n_trials = 5', True)
        >>> [info.key for info in store.list("incoming/")]
        ['incoming/lab/iris/spec.toml']
        >>> updated = store.replace(info.key, b"n_trials = 9", info.etag)
    """

    hook_class: ClassVar[str] = ""
    """Path of the Airflow hook class that holds the credentials, called with a connection id; or empty."""

    local: bool = False
    """Whether the objects are files on this machine, out of reach for containers."""

    def __init__(self, url: str) -> None:
        self.url = url
        """The root, without a slash at its end; ``open_store`` accepts it."""

    @classmethod
    @abstractmethod
    def from_url(cls, url: str, *, hook: Any = None, interactive: bool = False) -> Self:
        """Return the store at ``url``, which has the scheme of the entry point; send no request.

        ``hook`` is an instance of ``hook_class``; without one, credentials come from the environment. With
        ``interactive``, fail within seconds if the service does not answer, because a user is waiting.

        Raises:
            PlatformError: the URL is incomplete or wrong.
        """

    @abstractmethod
    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of an object, or ``None`` if it does not exist."""

    @abstractmethod
    def read(self, key: str, *, limit: int | None = None, start: int = 0) -> tuple[bytes, ObjectInfo]:
        """Return the content, at most ``limit`` bytes of it, and the metadata of exactly this whole content.

        ``start`` is the position of the first byte returned; it is before the end of the content, or 0.

        Raises:
            ObjectMissingError: the object does not exist.
        """

    @abstractmethod
    def open(self, key: str, *, etag: str | None = None) -> BinaryIO:
        """Open an object as a forward-only stream, which the caller closes.

        Raises:
            ObjectMissingError: the object does not exist.
            ConflictError: the object has another ETag than ``etag``.
        """

    @abstractmethod
    def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Write an object, new or not; by default the content type follows from the key's extension."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> ObjectInfo:
        """Write a new object; raise ``ConflictError`` if it exists."""

    @abstractmethod
    def replace(self, key: str, data: bytes, etag: str) -> ObjectInfo:
        """Write an object whose ETag is ``etag``; raise ``ConflictError`` if it changed or was deleted."""

    @abstractmethod
    def upload(self, key: str, path: Path) -> ObjectInfo:
        """Write a local file as an object, in bounded memory."""

    @abstractmethod
    def download(self, key: str, path: Path, *, etag: str | None = None) -> ObjectInfo:
        """Write an object to the local file ``path``, atomically.

        Raises:
            ObjectMissingError: the object does not exist.
            ConflictError: the object has another ETag than ``etag``.
        """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix`` (any string), in any order."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object; do nothing if it does not exist."""

    def erase(self, key: str) -> None:
        """Delete an object that holds a secret, with all earlier versions if the store keeps any."""
        self.delete(key)

    def get(self, key: str) -> bytes:
        """Return the content of an object; raise ``ObjectMissingError`` if it does not exist."""
        return self.read(key)[0]

    def trainer_environment(self) -> dict[str, str]:
        """Return the environment variables with which a trainer process or container opens this store."""
        return {}

    def limited_environment(self, role: str, access: Access, name: str) -> dict[str, str]:
        """Return variables as ``trainer_environment`` does, whose credentials allow ``access`` only.

        They are those of a session of ``role``, in the service's terms, and expire; ``name`` identifies it.

        Raises:
            PlatformError: this kind of store has no such credentials.
            StoreError: the service does not give them.
        """
        raise PlatformError(f"{self.url} has no credentials for single trainers: remove `trainer_role`")

    async def list_async(self, prefix: str) -> Sequence[ObjectInfo]:
        """Return the objects below ``prefix`` without blocking the event loop."""
        import asyncio  # slow to import, and few processes need it

        return await asyncio.to_thread(lambda: tuple(self.list(prefix)))

    async def watch(self, prefix: str, *, poll_seconds: float) -> AsyncGenerator[Sequence[ObjectInfo], None]:
        """Yield the objects below ``prefix`` at once, and again after each change.

        The default lists them every ``poll_seconds``; a service's notifications may replace that. After a
        ``StoreError`` the caller watches again.
        """
        async for listing in poll_changes(lambda: self.list_async(prefix), poll_seconds):
            yield listing

    def begin_upload(self, key: str) -> str:
        """Begin a multipart upload and return its id; abort unfinished uploads of the same object.

        Raises:
            PlatformError: the store has no multipart uploads.
        """
        raise self._no_multipart()

    def upload_part(self, key: str, upload: str, number: int, data: bytes) -> None:
        """Write a part, numbered from 1, or replace it; raise ``StoreError`` if there is no such upload."""
        raise self._no_multipart()

    def finish_upload(self, key: str, upload: str, size: int) -> None:
        """Create the object from the parts of a multipart upload.

        Raises:
            ConflictError: the parts do not add up to ``size`` bytes.
            StoreError: there is no such upload of this object.
        """
        raise self._no_multipart()

    def abort_upload(self, key: str, upload: str) -> None:
        """Abort a multipart upload; do nothing if it does not exist."""
        raise self._no_multipart()

    def _no_multipart(self) -> PlatformError:
        return PlatformError(
            f"{self.url} does not support uploads from the browser; copy the file there yourself"
        )


async def poll_changes(
    fetch: Callable[[], Awaitable[Sequence[ObjectInfo]]], poll_seconds: float
) -> AsyncGenerator[Sequence[ObjectInfo], None]:
    """Yield the first listing of ``fetch``, and then each one that differs from the last."""
    import asyncio

    last: Sequence[ObjectInfo] | None = None
    while True:
        listing = await fetch()
        if listing != last:
            last = listing
            yield listing
        await asyncio.sleep(poll_seconds)


def check_key(key: str) -> str:
    """Return ``key``, or raise ``StoreError`` if it is not valid in every store.

    A part may not be empty, ``.`` or ``..``, nor contain a backslash or a control character.
    """
    parts = key.split("/")
    if any(part in {"", ".", ".."} for part in parts) or _FORBIDDEN.search(key):
        raise StoreError(
            f"{key!r} cannot be a key: parts between slashes must be plain names, "
            "without backslashes and control characters"
        )
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{key!r} cannot be a key: it is not valid Unicode") from error
    if len(encoded) > _MAX_KEY_BYTES:
        raise StoreError(f"{key[:80]!r}... cannot be a key: longer than {_MAX_KEY_BYTES} bytes")
    return key


def is_key(key: str) -> bool:
    """Return whether a key is valid in every store; other clients may write objects with other keys."""
    try:
        check_key(key)
    except StoreError:
        return False
    return True


def file_sha256(stream: BinaryIO) -> str:
    """Return the hex SHA-256 of the rest of ``stream``."""
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
