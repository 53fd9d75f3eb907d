"""The SHA-256 of data that an earlier trainer of the team has read: an unchanged file is not hashed again.

A store's file is known by its address, ETag and size, a local one by its address, inode, size and times. Any
other file at the same address is hashed. The records lie in the team's folder of the cache of matrices, one
for each address; a damaged one counts as none, and no fault of the folder fails a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from dmls_core.settings import CacheSettings

_FOLDER = "hashes"
_SETTLED_SECONDS = 2.0
"""Age from which a local file's times tell: a file system may give two writes the same time."""


class KnownHashes:
    """The hashes that one team's trainers keep on this machine."""

    def __init__(self, folder: Path | None) -> None:
        """Keep hashes in a team's folder of the cache; None keeps none."""
        self._team = folder

    @classmethod
    def of(cls, team: str) -> KnownHashes:
        """Return the hashes of a team; none are stored if the settings name no folder."""
        folder = CacheSettings.from_environment().folder
        return cls(Path(folder) / team if folder else None)

    def sha256(self, url: str, path: Path, etag: str) -> str:
        """Return the SHA-256 of a file; ``etag`` is the one with which the store gave it, empty if local."""
        if self._team is None:
            return _hash(path)
        facts = _facts(url, path, etag)
        record = self._team / _FOLDER / hashlib.sha256(url.encode()).hexdigest()
        if recorded := _read(record, facts):
            return recorded
        sha256 = _hash(path)
        if facts == _facts(url, path, etag) and (etag or _settled(path)):
            with suppress(OSError):
                self._team.mkdir(mode=0o700, parents=True, exist_ok=True)  # only its team may look into it
                record.parent.mkdir(exist_ok=True)
                part = record.with_name(uuid.uuid4().hex)
                part.write_text(f"{sha256} {_seal(facts, sha256)}")
                part.replace(record)
        return sha256


def _facts(url: str, path: Path, etag: str) -> list[str | int]:
    """Return what identifies a file's content without reading it."""
    status = path.stat()
    if etag:
        return [url, etag, status.st_size]
    return [
        str(path),
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    ]


def _settled(path: Path) -> bool:
    status = path.stat()
    return time.time() - max(status.st_mtime, status.st_ctime) > _SETTLED_SECONDS


def _read(record: Path, facts: list[str | int]) -> str:
    """Return the hash in a record, empty if it is of another file or damaged."""
    try:
        sha256, seal = record.read_text(encoding="ascii").split(" ")
        if seal != _seal(facts, sha256):
            return ""
        os.utime(record.parent)  # the cache deletes what was used least recently
    except (OSError, ValueError):
        return ""
    return sha256


def _seal(facts: list[str | int], sha256: str) -> str:
    return hashlib.sha256(json.dumps([facts, sha256]).encode()).hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
