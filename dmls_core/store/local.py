"""A store in a local folder."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import logging
import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import unquote, urlsplit

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.store.base import CHUNK, ObjectInfo, Store, check_key, file_sha256
from dmls_core.visible_text import visible

logger = logging.getLogger(__name__)

SETTLED_SECONDS = 2.0
"""Age from which a file's hash is cached: before, a clock tick may hide a change of the same size."""

_TEMPORARY = ".dmls-tmp"
"""Suffix of files that are still being written."""

_ABANDONED_SECONDS = 3600.0
"""Age from which a temporary file counts as left behind by a killed process."""

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Error numbers of paths that lead to no file."""


class LocalStore(Store):
    """Objects as files below a folder, with atomic and conditional writes as in S3.

    An ETag is the first half of the content's SHA-256. Symbolic links are neither listed nor followed.
    """

    local = True

    def __init__(self, root: Path) -> None:
        """Bind to a folder, which the first write creates."""
        self.root = Path(os.path.realpath(root))
        super().__init__(str(self.root))
        self._etags: dict[str, tuple[tuple[int, ...], str]] = {}

    @classmethod
    def from_url(cls, url: str, *, hook: Any = None, interactive: bool = False) -> Self:  # noqa: ARG003
        """See ``Store.from_url``; ``url`` is ``file:///folder`` or a path."""
        if url.startswith("file://"):
            return cls(Path(unquote(urlsplit(url).path)))
        return cls(Path(url).expanduser())

    def head(self, key: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        try:
            with self.open(key) as stream, _translated(f"read {self._path(key)}"):
                return self._info(key, stream)
        except ObjectMissingError:
            return None

    def read(self, key: str, *, limit: int | None = None, start: int = 0) -> tuple[bytes, ObjectInfo]:
        """See ``Store.read``."""
        with self.open(key) as stream, _translated(f"read {self._path(key)}"):
            info = self._info(key, stream)
            stream.seek(start)
            return stream.read(-1 if limit is None else limit), info

    def open(self, key: str, *, etag: str | None = None) -> BinaryIO:
        """See ``Store.open``."""
        path = self._path(key)
        with _translated(f"read {path}"):
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
        with _translated(f"read {path}"):
            stream = path.open("rb")
        with stream:
            return self._write(key, stream)

    def download(self, key: str, path: Path, *, etag: str | None = None) -> ObjectInfo:
        """See ``Store.download``."""
        source = self._path(key)
        with self.open(key) as stream, _translated(f"write {path}"), temporary_file(path) as temporary:
            modified = _modified(os.fstat(stream.fileno()))
            copied_etag = _copy(stream, temporary)
            self._expect(source, etag, copied_etag)
            temporary.replace(path)
            return ObjectInfo(key, path.stat().st_size, copied_etag, modified)

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
        with suppress(ObjectMissingError), _translated(f"delete {path}"), _locked(path.parent):
            path.unlink()

    def _path(self, key: str) -> Path:
        path = self.root / check_key(key)
        if path.name.endswith(_TEMPORARY):
            raise StoreError(f"{key!r} cannot be a key: the suffix {_TEMPORARY} is reserved")
        if os.path.realpath(path.parent) != str(path.parent):
            raise StoreError(f"cannot use {path}: a folder in it is a symbolic link; put a real folder there")
        return path

    def _info(self, key: str, stream: BinaryIO) -> ObjectInfo:
        """Return the metadata of an open file; leave the stream at its start."""
        facts = os.fstat(stream.fileno())
        stamp = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        cached = self._etags.get(key)
        if cached and cached[0] == stamp:
            etag = cached[1]
        else:
            etag = _etag(file_sha256(stream))
            stream.seek(0)
            if time.time() - max(facts.st_mtime, facts.st_ctime) > SETTLED_SECONDS:
                self._etags[key] = (stamp, etag)
        return ObjectInfo(key, facts.st_size, etag, _modified(facts))

    def _write(
        self, key: str, source: BinaryIO, *, absent: bool = False, etag: str | None = None
    ) -> ObjectInfo:
        """Write an object; ``absent`` and ``etag`` are the conditions of ``create`` and ``replace``."""
        path = self._path(key)
        with _translated(f"write {path}"), temporary_file(path) as temporary:
            written = _copy(source, temporary)
            facts = temporary.stat()
            with _locked(path.parent):
                if absent and os.path.lexists(path):
                    raise ConflictError(f"{path} exists already")
                if etag is not None:
                    self._expect(path, etag, self._current_etag(path))
                temporary.replace(path)
        return ObjectInfo(key, facts.st_size, written, _modified(facts))

    def _current_etag(self, path: Path) -> str | None:
        try:
            with open_regular(path) as stream:
                return _etag(file_sha256(stream))
        except FileNotFoundError:
            return None

    def _expect(self, path: Path, expected: str | None, actual: str | None) -> None:
        if expected is not None and actual != expected:
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
                continue  # deleted in the meantime
            except OSError as error:
                logger.warning(
                    "left out of the listing of %s: %s: %s", self.url, visible(key), error.strerror
                )
                continue
            yield info


@contextmanager
def _translated(action: str) -> Iterator[None]:
    """Turn an ``OSError`` into a ``StoreError``; its message begins with ``action`` ("read /folder/file")."""
    try:
        yield
    except OSError as error:
        if error.errno in _MISSING and not action.startswith("write "):
            raise ObjectMissingError(f"cannot {action}: there is no such object") from error
        raise StoreError(f"cannot {action}: {error.strerror or error}{_hint(error.errno)}") from error


def _hint(code: int | None) -> str:
    if code in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "; give this user the right to read and write the folder"
    if code in _MISSING:
        return "; no folder can be created there, choose another one"
    if code in {errno.ENOSPC, errno.EDQUOT}:
        return "; free some space"
    if code in {errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY}:
        return "; a folder and an object want the same name, rename one"
    return ""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a link, folder or pipe counts as missing."""
    # Without O_NONBLOCK a pipe would block the open.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the folder of ``path``; delete that file, and those of killed processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_abandoned(path.parent)
    temporary = path.parent / f".{uuid.uuid4().hex}{_TEMPORARY}"
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _delete_abandoned(folder: Path) -> None:
    oldest = time.time() - _ABANDONED_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(_TEMPORARY):
                continue
            # It may be gone by now, or belong to another user: neither prevents the write.
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    Path(entry.path).unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock against other threads and processes; flush its entries to disk at the end."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy(source: BinaryIO, target: Path) -> str:
    """Write the rest of ``source`` to a new file, flush it to disk, and return its ETag."""
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return _etag(digest.hexdigest())


def _etag(sha256: str) -> str:
    return sha256[:32]


def _names(folder: Path) -> list[str]:
    """Return a folder's entries in the order of S3, where a folder sorts as its name with a slash."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name + "/")
                elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(_TEMPORARY):
                    names.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        logger.warning("left out of the listing: %s: %s", folder, error.strerror)
        return []
    return sorted(filter(_is_utf8, names), key=str.encode)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _modified(facts: os.stat_result) -> datetime:
    return datetime.fromtimestamp(facts.st_mtime, UTC)
