"""Which partitions of a job have arrived since its data was last compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.intake import Partition, find_partitions
from dmls_core.monitoring.inference_log import MAX_BYTES
from dmls_core.spec.partitions import has_fields, parse_pattern
from dmls_core.store import ObjectInfo, Store, layout

SCHEMA = 1
STATE = "partitions.json"

MOST = 50
"""Periods compared at one look, the oldest; the others wait for the next one."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Up to where a job's partitions have been compared.

    Attributes:
        until: end of the latest period that was, ISO 8601 in UTC; empty: none was.
        run_key: of the run that made the champion of that time.
    """

    until: str = ""
    run_key: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``partitions.json``."""
        return {"schema": SCHEMA, "until": self.until, "run_key": self.run_key}


@dataclass(frozen=True, slots=True)
class Arrival:
    """The files of one period.

    Attributes:
        files: in order of names.
        end: of the period, ISO 8601 in UTC: it sorts as a text.
    """

    files: tuple[ObjectInfo, ...]
    end: str

    def joined(self, later: Arrival) -> Arrival:
        """Return this and a later one as one."""
        return Arrival((*self.files, *later.files), later.end)

    @property
    def name(self) -> str:
        """A name for the files: the same for the same content."""
        digest = hashlib.sha256(json.dumps([(f.key, f.etag) for f in self.files]).encode()).hexdigest()[:8]
        return f"{self.end[:19].replace(':', '').replace('-', '')}Z-{digest}"

    def download(self, store: Store, folder: Path, data_format: str | None) -> list[Path]:
        """Copy the files, ``MAX_BYTES`` of them at most but one at least, and return where they are."""
        paths: list[Path] = []
        left = MAX_BYTES
        for number, info in enumerate(self.files):
            left -= info.size
            if left < 0 and paths:
                break
            ending = data_format or info.key.rpartition(".")[2].lower()
            path = folder / f"{number}.{ending}"
            store.download(info.key, path)
            paths.append(path)
        return paths


def list_arrivals(store: Store, team: str, job: str, spec: Mapping[str, Any], after: str) -> list[Arrival]:
    """Return a job's periods that end after ``after`` and have arrived, in order of time.

    Args:
        store: holds what was dropped.
        team: of the job.
        job: its name.
        spec: its spec as JSON.
        after: ISO 8601 in UTC; empty: all.
    """
    path = spec["data"]["path"]
    if path is None or not has_fields(path):
        return []
    folder, pattern = layout.incoming_folder(team, job), parse_pattern(path)
    zone = (spec["schedule"] or {}).get("timezone", "UTC")
    found = find_partitions(store.list(folder + pattern.prefix), folder, pattern, zone)
    return [arrival for arrival in _periods(found) if arrival.end > after]


def _periods(partitions: Iterable[Partition]) -> Iterable[Arrival]:
    for (_, end), files in groupby(partitions, key=lambda found: (found.start, found.end)):
        yield Arrival(tuple(found.file for found in files), _iso(end))


def read_compared(store: Store, team: str, job: str) -> Compared:
    """Return up to where a job's partitions have been compared."""
    try:
        found = json.loads(store.get(layout.monitor_folder(team, job) + STATE))
    except ObjectMissingError:
        return Compared()
    return Compared(found["until"], found["run_key"])


def source_name(team: str, job: str, files: Sequence[ObjectInfo]) -> str:
    """Return how people call the files: the name of the first, as the spec's ``[data] path`` has it."""
    first = files[0].key.removeprefix(layout.incoming_folder(team, job))
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
