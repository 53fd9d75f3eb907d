"""New partitions: the periods of a job's data that have arrived since its data was last compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from dmls_core.data.formats.names import COMPRESSED, format_of, load_format
from dmls_core.errors import ObjectMissingError
from dmls_core.intake import Partition, find_partitions
from dmls_core.monitoring.inference_log import MAX_BYTES
from dmls_core.spec.partitions import has_fields, parse_pattern
from dmls_core.store import ObjectInfo, Store, layout

_SCHEMA = 1
STATE_FILE = "partitions.json"

MAX_PERIODS = 50
"""Periods compared in one monitor run, the oldest ones; the others wait for the next run."""


@dataclass(frozen=True, slots=True)
class PartitionCursor:
    """Position up to which a job's partitions have been compared.

    Attributes:
        until: end of the latest compared period, ISO 8601 in UTC; empty if none was compared.
        run_key: run of the champion at that time.
    """

    until: str = ""
    run_key: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``partitions.json``."""
        return {"schema": _SCHEMA, "until": self.until, "run_key": self.run_key}


@dataclass(frozen=True, slots=True)
class PeriodFiles:
    """The files of one period, or of several adjacent periods, ordered by name.

    ``end`` is in ISO 8601 and UTC, which sorts as text.
    """

    files: tuple[ObjectInfo, ...]
    end: str

    def joined(self, later: PeriodFiles) -> PeriodFiles:
        """Return this period and a later one as one."""
        return PeriodFiles((*self.files, *later.files), later.end)

    @property
    def name(self) -> str:
        """A name for the files; the same content gives the same name."""
        digest = hashlib.sha256(json.dumps([(f.key, f.etag) for f in self.files]).encode()).hexdigest()[:8]
        return f"{self.end[:19].replace(':', '').replace('-', '')}Z-{digest}"

    def download(self, store: Store, folder: Path, data_format: str | None) -> list[Path]:
        """Copy the files, at most ``MAX_BYTES`` but at least one file, and return the copies."""
        paths: list[Path] = []
        left = MAX_BYTES
        for number, info in enumerate(self.files):
            left -= info.size
            if left < 0 and paths:
                break
            path = folder / f"{number}{_ending(info.key, data_format)}"
            store.download(info.key, path)
            paths.append(path)
        return paths


def _ending(key: str, data_format: str | None) -> str:
    """Return the ending of a name that shows the format of a file, and whether it is compressed."""
    ending = f".{key.rpartition('.')[2].lower()}"
    name = data_format or format_of(key)
    shown = load_format(name).suffixes[0] if name else ending
    return f"{shown}{ending}" if ending in COMPRESSED else shown


def list_new_periods(
    store: Store, team: str, job: str, spec: Mapping[str, Any], after: str
) -> list[PeriodFiles]:
    """Return a job's periods with files that end after ``after`` (empty: all), ordered by time."""
    path = spec["data"]["path"]
    if path is None or not has_fields(path):
        return []
    folder, pattern = layout.incoming_folder(team, job), parse_pattern(path)
    zone = (spec["schedule"] or {}).get("timezone", "UTC")
    partitions = find_partitions(store.list(folder + pattern.prefix), folder, pattern, zone)
    return [period for period in _periods(partitions) if period.end > after]


def _periods(partitions: Iterable[Partition]) -> Iterable[PeriodFiles]:
    for (_, end), files in groupby(partitions, key=lambda partition: (partition.start, partition.end)):
        yield PeriodFiles(tuple(partition.file for partition in files), _iso(end))


def read_partition_cursor(store: Store, team: str, job: str) -> PartitionCursor:
    """Return the position up to which a job's partitions have been compared."""
    try:
        state = json.loads(store.get(layout.monitor_folder(team, job) + STATE_FILE))
    except ObjectMissingError:
        return PartitionCursor()
    return PartitionCursor(state["until"], state["run_key"])


def source_name(team: str, job: str, files: Sequence[ObjectInfo]) -> str:
    """Return a display name for the files: the first one's path, as in the spec's ``[data] path``."""
    first = files[0].key.removeprefix(layout.incoming_folder(team, job))
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
