"""Which logged requests are new since the last comparison.

A job's requests are Parquet files anywhere below ``inference/<team>/<job>/``: the features under their own
names, and the target's column where it is known. Files are written once and not changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.store import ObjectInfo, Store, layout

SCHEMA = 1
STATE = "state.json"
ENDING = ".parquet"

MAX_BYTES = 256 << 20
"""Bytes of files read for one comparison: the newest ones."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Up to where logged requests have been compared.

    Attributes:
        until: when the latest file that was compared was written, ISO 8601 in UTC; empty: none was.
        keys: the files that were written at that very time, as far as they were compared.
    """

    until: str = ""
    keys: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``state.json``."""
        return {"schema": SCHEMA, "until": self.until, "keys": list(self.keys)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Seen:
        """Read what ``as_json`` returned."""
        return cls(data["until"], tuple(data["keys"]))

    def advance(self, compared: Sequence[ObjectInfo]) -> Seen:
        """Return this with files added that are new to it."""
        until = max(_time(info) for info in compared)
        keys = {info.key for info in compared if _time(info) == until}
        return Seen(until, tuple(sorted(keys.union(self.keys if until == self.until else ()))))

    @property
    def name(self) -> str:
        """A name for what was compared up to here: the same for the same files."""
        digest = hashlib.sha256(json.dumps(self.as_json()).encode()).hexdigest()[:8]
        return f"{self.until[:19].replace(':', '').replace('-', '')}Z-{digest}"


def list_requests(store: Store) -> dict[tuple[str, str], list[ObjectInfo]]:
    """Return every job's files of logged requests, by team and job."""
    found: dict[tuple[str, str], list[ObjectInfo]] = {}
    for info in store.list(layout.INFERENCE):
        team, _, rest = info.key.removeprefix(layout.INFERENCE).partition("/")
        job, _, file = rest.partition("/")
        if file.endswith(ENDING) and layout.is_name(team) and layout.is_name(job):
            found.setdefault((team, job), []).append(info)
    return found


def new_requests(files: Iterable[ObjectInfo], seen: Seen) -> list[ObjectInfo]:
    """Return the files that are new, in order of time."""
    new = (info for info in files if _time(info) >= seen.until and info.key not in seen.keys)
    return sorted(new, key=lambda info: (info.modified, info.key))


def download_newest(store: Store, files: Sequence[ObjectInfo], folder: Path) -> list[Path]:
    """Copy the newest files, ``MAX_BYTES`` of them at most but one at least, and return where they are."""
    paths: list[Path] = []
    left = MAX_BYTES
    for number, info in enumerate(reversed(files)):
        left -= info.size
        if left < 0 and paths:
            break
        path = folder / f"{number}{ENDING}"
        store.download(info.key, path)
        paths.append(path)
    return paths


def read_seen(store: Store, team: str, job: str) -> Seen:
    """Return up to where a job's requests have been compared."""
    try:
        return Seen.from_json(json.loads(store.get(layout.monitor_folder(team, job) + STATE)))
    except ObjectMissingError:
        return Seen()


def _time(info: ObjectInfo) -> str:
    """Return when a file was written, so that later is larger."""
    return info.modified.isoformat(timespec="microseconds")
