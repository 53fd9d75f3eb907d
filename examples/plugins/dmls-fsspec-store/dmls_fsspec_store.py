"""Store for DMLS on any file system of fsspec: ``fsspec+file:///folder``, ``fsspec+memory://name``.

fsspec has no conditional writes that all its file systems share. This store takes a lock of the machine
instead, for every operation: it is safe for threads and processes on one machine, and only there. A store for
a service with conditional requests, such as Google Cloud Storage, uses those and needs no lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import fsspec

from dmls_core.errors import ConflictError, ObjectMissingError, PlatformError, StoreError
from dmls_core.store import ObjectInfo, Store, check_key
from dmls_core.store.base import file_sha256
from dmls_core.store.local import temporary_file

TEMPORARY = ".dmls-tmp-"
"""Prefix of objects that are still being written."""


class FsspecStore(Store):
    """Objects below a folder of an fsspec file system; an ETag is the SHA-256 of the content."""

    def __init__(self, url: str) -> None:
        super().__init__(url.rstrip("/"))
        with _errors(f"open {url}"):
            self._fs, self._root = fsspec.core.url_to_fs(url.removeprefix("fsspec+"))
        self.local = self._fs.protocol in ("memory", ("file", "local"))
        name = hashlib.sha256(self.url.encode()).hexdigest()[:32]
        self._lock = Path(tempfile.gettempdir()) / f"dmls-fsspec-{name}.lock"

    @classmethod
    def from_url(cls, url: str, *, hook: Any = None, interactive: bool = False) -> Self:
        """Return the store at ``fsspec+PROTOCOL://PATH``."""
        if not url.startswith("fsspec+"):
            raise PlatformError(f"{url!r} is not the URL of a store: give fsspec+PROTOCOL://PATH")
        return cls(url)

    def head(self, key: str) -> ObjectInfo | None:
        with self._locked(f"read {self.url}/{check_key(key)}"):
            return self._info(key)

    def read(self, key: str, *, limit: int | None = None, start: int = 0) -> tuple[bytes, ObjectInfo]:
        with self._locked(f"read {self.url}/{check_key(key)}"):
            info = self._expect(key)
            return self._fs.cat_file(self._path(key), start=start, end=limit and start + limit), info

    def open(self, key: str, *, etag: str | None = None) -> BinaryIO:
        # A copy, so that later writes do not change what the stream returns.
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            with self._locked(f"read {self.url}/{check_key(key)}"):
                self._expect(key, etag)
                self._fs.get_file(self._path(key), copy)
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return copy

    def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        with self._locked(f"write {self.url}/{check_key(key)}"):
            return self._write(key, data)

    def create(self, key: str, data: bytes) -> ObjectInfo:
        with self._locked(f"write {self.url}/{check_key(key)}"):
            if self._info(key):
                raise ConflictError(f"{self.url}/{key} exists already")
            return self._write(key, data)

    def replace(self, key: str, data: bytes, etag: str) -> ObjectInfo:
        with self._locked(f"write {self.url}/{check_key(key)}"):
            info = self._info(key)
            if info is None or info.etag != etag:
                raise ConflictError(f"{self.url}/{key} was changed or removed by another writer")
            return self._write(key, data)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        with self._locked(f"write {self.url}/{check_key(key)}"):
            return self._write(key, path)

    def download(self, key: str, path: Path, *, etag: str | None = None) -> ObjectInfo:
        with self._locked(f"copy {self.url}/{check_key(key)} to {path}"), temporary_file(path) as temporary:
            info = self._expect(key, etag)
            self._fs.get_file(self._path(key), str(temporary))
            temporary.replace(path)
            return info

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        with self._locked(f"list {self.url}/{prefix}"):
            paths = self._fs.find(f"{self._root}/{folder}")
            keys = [path[len(self._root.rstrip("/")) + 1 :] for path in paths]
            infos = [self._info(key) for key in keys if key.startswith(prefix) and TEMPORARY not in key]
        yield from (info for info in infos if info)

    def delete(self, key: str) -> None:
        with self._locked(f"delete {self.url}/{check_key(key)}"):
            if self._info(key):
                self._fs.rm_file(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    def _info(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        if not self._fs.isfile(path):
            return None
        with self._fs.open(path, "rb") as stream:
            etag = file_sha256(stream)
        return ObjectInfo(key, self._fs.size(path), etag, self._fs.modified(path))

    def _expect(self, key: str, etag: str | None = None) -> ObjectInfo:
        info = self._info(key)
        if info is None:
            raise ObjectMissingError(f"cannot read {self.url}/{key}: there is no such object")
        if etag is not None and info.etag != etag:
            raise ConflictError(f"{self.url}/{key} was changed by another writer")
        return info

    def _write(self, key: str, content: bytes | Path) -> ObjectInfo:
        """Write to a temporary name first: a killed writer leaves no half object."""
        folder, _, name = self._path(key).rpartition("/")
        temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex}"
        self._fs.makedirs(folder, exist_ok=True)
        try:
            if isinstance(content, bytes):
                self._fs.pipe_file(temporary, content)
            else:
                self._fs.put_file(str(content), temporary)
            self._fs.mv(temporary, f"{folder}/{name}")
        finally:
            if self._fs.exists(temporary):
                self._fs.rm_file(temporary)
        return self._expect(key)

    @contextmanager
    def _locked(self, action: str) -> Iterator[None]:
        with _errors(action), self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def _errors(action: str) -> Iterator[None]:
    """Turn errors of fsspec into ``StoreError``; the message begins with ``action``."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise StoreError(f"cannot {action}: {error}") from error
