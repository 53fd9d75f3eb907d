"""Files written whole or not at all, under a lock of their folder."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dmls_core.errors import ObjectMissingError, StoreError
from dmls_core.store.base import CHUNK

TEMPORARY = ".dmls-tmp"
"""Ending of files still being written."""

ABANDONED_SECONDS = 3600.0
"""A temporary file that nobody wrote to for so long belongs to a process that was killed."""


NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""What the system says of a path that leads to nothing."""


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn an ``OSError`` into ``StoreError``; ``action`` ("read /folder/file") begins the message."""
    try:
        yield
    except OSError as error:
        if error.errno in NOWHERE and not action.startswith("write "):
            raise ObjectMissingError(f"cannot {action}: there is no such object") from error
        raise StoreError(f"cannot {action}: {error.strerror or error}{_mend(error.errno)}") from error


def _mend(code: int | None) -> str:
    if code in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "; give this user the right to read and write the folder"
    if code in NOWHERE:
        return "; no folder can be made there, choose another one"
    if code in {errno.ENOSPC, errno.EDQUOT}:
        return "; free some space"
    if code in {errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY}:
        return "; a folder and an object want the same name, rename one"
    return ""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a link, folder or pipe counts as missing.

    Raises:
        OSError: as ``open`` does.
    """
    # Without O_NONBLOCK a pipe would hang the open.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """Give a name for a file in ``path``'s folder, made where missing; removed afterwards if still there.

    What killed processes left in the folder in this way is removed too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent)
    temporary = path.parent / f".{uuid.uuid4().hex}{TEMPORARY}"
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    oldest = time.time() - ABANDONED_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(TEMPORARY):
                continue
            # It may be gone by now, or another user's: neither keeps anybody from writing.
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    Path(entry.path).unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock against other threads and processes; its entries are on disk afterwards."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        os.fsync(handle)
    finally:
        os.close(handle)


def copy(source: BinaryIO, target: Path) -> str:
    """Write the rest of ``source`` to a new file, on disk when this returns; return its ETag."""
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return short(digest.hexdigest())


def short(sha256: str) -> str:
    """Return the ETag that belongs to a content's hash."""
    return sha256[:32]
