"""The store over a local folder."""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.store.base import ObjectInfo, Store, check_key, file_sha256
from dmls_core.store.local_files import (
    TEMPORARY,
    copy,
    locked,
    open_regular,
    short,
    temporary_beside,
    translated,
)

logger = logging.getLogger(__name__)

SETTLED_SECONDS = 2.0
"""A file's hash is remembered once the file is older than this: a younger one may change again within
one tick of the file system's clock, and nobody would notice."""


class LocalStore(Store):
    """Objects as files below a folder, with S3's promises: whole objects, conditional writes.

    An ETag is half of the content's SHA-256. Symbolic links are neither listed nor followed.
    """

    def __init__(self, root: Path) -> None:
        """Bind to a folder, which is made on the first write."""
        self.root = Path(os.path.realpath(root))
        super().__init__(str(self.root))
        self._etags: dict[str, tuple[tuple[int, ...], str]] = {}

    def head(self, key: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        try:
            with self.open(key) as stream, translated(f"read {self._path(key)}"):
                return self._info(key, stream)
        except ObjectMissingError:
            return None

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, ObjectInfo]:
        """See ``Store.read``."""
        with self.open(key) as stream, translated(f"read {self._path(key)}"):
            info = self._info(key, stream)
            return stream.read(-1 if limit is None else limit), info

    def open(self, key: str, *, etag: str | None = None) -> BinaryIO:
        """See ``Store.open``."""
        path = self._path(key)
        with translated(f"read {path}"):
            stream = open_regular(path)
        try:
            self._expect(path, etag, self._info(key, stream).etag if etag else None)
        except ConflictError:
            stream.close()
            raise
        return stream

    def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:  # noqa: ARG002
        """See ``Store.put``; a folder keeps no content types."""
        return self._write(key, io.BytesIO(data))

    def create(self, key: str, data: bytes) -> ObjectInfo:
        """See ``Store.create``."""
        return self._write(key, io.BytesIO(data), absent=True)

    def replace(self, key: str, data: bytes, etag: str) -> ObjectInfo:
        """See ``Store.replace``."""
        return self._write(key, io.BytesIO(data), etag=etag)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """See ``Store.upload``."""
        with translated(f"read {path}"):
            stream = path.open("rb")
        with stream:
            return self._write(key, stream)

    def download(self, key: str, path: Path, *, etag: str | None = None) -> ObjectInfo:
        """See ``Store.download``."""
        source = self._path(key)
        with self.open(key) as stream, translated(f"write {path}"), temporary_beside(path) as temporary:
            modified = _modified(os.fstat(stream.fileno()))
            found = copy(stream, temporary)
            self._expect(source, etag, found)
            temporary.replace(path)
            return ObjectInfo(key, path.stat().st_size, found, modified)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list``."""
        folder, slash, _ = prefix.rpartition("/")
        if folder:
            check_key(folder)
            if os.path.realpath(self.root / folder) != str(self.root / folder):
                return
        yield from self._walk(folder + slash, prefix)

    def delete(self, key: str) -> None:
        """See ``Store.delete``."""
        path = self._path(key)
        try:
            with translated(f"delete {path}"), locked(path.parent):
                path.unlink()
        except ObjectMissingError:
            pass

    def _path(self, key: str) -> Path:
        path = self.root / check_key(key)
        if path.name.endswith(TEMPORARY):
            raise StoreError(f"{key!r} cannot be a key: the ending {TEMPORARY} is taken")
        if os.path.realpath(path.parent) != str(path.parent):
            raise StoreError(f"cannot use {path}: a folder in it is a symbolic link; put a real folder there")
        return path

    def _info(self, key: str, stream: BinaryIO) -> ObjectInfo:
        """Describe an open file; leaves ``stream`` at its start."""
        facts = os.fstat(stream.fileno())
        stamp = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self._etags.get(key)
        if known and known[0] == stamp:
            etag = known[1]
        else:
            etag = short(file_sha256(stream))
            stream.seek(0)
            if time.time() - max(facts.st_mtime, facts.st_ctime) > SETTLED_SECONDS:
                self._etags[key] = (stamp, etag)
        return ObjectInfo(key, facts.st_size, etag, _modified(facts))

    def _write(
        self, key: str, source: BinaryIO, *, absent: bool = False, etag: str | None = None
    ) -> ObjectInfo:
        """Write an object; ``absent`` and ``etag`` are the conditions of ``create`` and ``replace``."""
        path = self._path(key)
        with translated(f"write {path}"), temporary_beside(path) as temporary:
            written = copy(source, temporary)
            facts = temporary.stat()
            with locked(path.parent):
                if absent and os.path.lexists(path):
                    raise ConflictError(f"{path} exists already")
                if etag is not None:
                    self._expect(path, etag, self._current_etag(path))
                temporary.replace(path)
        return ObjectInfo(key, facts.st_size, written, _modified(facts))

    def _current_etag(self, path: Path) -> str | None:
        try:
            with open_regular(path) as stream:
                return short(file_sha256(stream))
        except FileNotFoundError:
            return None

    def _expect(self, path: Path, expected: str | None, found: str | None) -> None:
        if expected is not None and found != expected:
            raise ConflictError(f"{path} was changed or removed by another writer")

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        for name in _names(self.root / folder):
            key = folder + name
            if not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if name.endswith("/"):
                yield from self._walk(key, prefix)
                continue
            try:
                with open_regular(self.root / key) as stream:
                    info = self._info(key, stream)
            except FileNotFoundError:
                continue  # removed meanwhile
            except OSError as error:
                logger.warning("left out of the listing of %s: %s: %s", self.url, key, error.strerror)
                continue
            yield info


def _names(folder: Path) -> list[str]:
    """Return a folder's entries in S3's order: a folder sorts as its name with a slash."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name + "/")
                elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(TEMPORARY):
                    names.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        logger.warning("left out of the listing: %s: %s", folder, error.strerror)
        return []
    return sorted(filter(_is_text, names), key=str.encode)


def _is_text(name: str) -> bool:
    """Say whether a file name is UTF-8, as every key is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _modified(facts: os.stat_result) -> datetime:
    return datetime.fromtimestamp(facts.st_mtime, UTC)
