"""Listings that follow the changes that an S3 server names in a file, instead of listing all objects often.

The file's first line is its own name. Each further line is a changed folder in JSON, its key with the slash
at its end. The file is touched every second as long as the server can be followed, and replaced by one with
another name when changes may have been missed.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

from dmls_core.store.base import ObjectInfo

Fetch = Callable[[str], Awaitable[Sequence[ObjectInfo]]]
"""Lists the objects below a prefix."""

LOOK_SECONDS = 0.2

SILENCE = 10.0
"""Seconds after which a file that is not touched counts as missing."""

WHOLE_SECONDS = 60.0
"""Seconds between two listings of all objects while the file names each change."""

MANY = 50
"""Changed folders from which all objects are listed instead."""


class ChangeFile:
    """Reads the file from where it was read before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name, self._offset = b"", 0

    def read(self) -> set[str] | None:
        """Return the folders that have changed since the last call; ``None`` if that is unknown."""
        before, self._name = self._name, b""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if abs(time.time() - stat.st_mtime) > SILENCE:
                    return None
                self._name = file.readline()
                if not before or self._name != before:
                    self._offset = stat.st_size
                    return None
                file.seek(self._offset)
                whole, end, _ = file.read().rpartition(b"\n")
                self._offset += len(whole) + len(end)
                return set(map(json.loads, whole.splitlines()))
        except (OSError, ValueError):
            return None


async def watch_changes(
    changes: ChangeFile, fetch: Fetch, prefix: str, poll_seconds: float
) -> AsyncGenerator[Sequence[ObjectInfo], None]:
    """Yield the objects below ``prefix``, and again whenever they have changed.

    Only changed folders are listed. While changes may be missed, all objects are, every ``poll_seconds``.
    """
    known: dict[str, ObjectInfo] = {}
    yielded: dict[str, ObjectInfo] | None = None
    missed, listed = True, -math.inf
    while True:
        folders = changes.read()
        missed = missed or folders is None or len(folders) > MANY
        if time.monotonic() >= listed + (poll_seconds if missed else WHOLE_SECONDS):
            known = {info.key: info for info in await fetch(prefix)}
            missed, listed = False, time.monotonic()
        elif folders and not missed:
            for folder in sorted(folder for folder in folders if folder.startswith(prefix)):
                others = {key: info for key, info in known.items() if not key.startswith(folder)}
                known = others | {info.key: info for info in await fetch(folder)}
        if known is not yielded and known != yielded:
            yield tuple(known.values())
        yielded = known
        await asyncio.sleep(LOOK_SECONDS)
