"""Which of a job's files hold the data of an interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from dmls_core.store import ObjectInfo

if TYPE_CHECKING:
    from dmls_core.spec.partitions import PartitionPattern


@dataclass(frozen=True, slots=True)
class Partition:
    """A file, and from when to when its data is.

    Attributes:
        file: the object.
        start: UTC.
        end: UTC, excluded.
    """

    file: ObjectInfo
    start: datetime
    end: datetime


def find_partitions(
    objects: Iterable[ObjectInfo], folder: str, pattern: PartitionPattern, timezone: str
) -> list[Partition]:
    """Return the files that fit a pattern, in order of time and name.

    Args:
        objects: a listing.
        folder: key that the pattern is below, with a slash at its end.
        pattern: of ``[data] path``.
        timezone: of the dates in names.
    """
    zone = ZoneInfo(timezone)
    found = []
    for info in objects:
        period = pattern.period(info.key.removeprefix(folder), zone)
        if info.key.startswith(folder) and period:
            found.append(Partition(info, *period))
    return sorted(found, key=lambda partition: (partition.start, partition.file.key))


def partitions_between(
    partitions: Iterable[Partition], start: datetime | None, end: datetime
) -> list[Partition]:
    """Return the partitions that end after ``start`` and no later than ``end``.

    So consecutive intervals share no partition, and none has rows from after its interval.
    """
    return [found for found in partitions if (start is None or start < found.end) and found.end <= end]


def newest_partition(partitions: list[Partition]) -> list[Partition]:
    """Return the files of the latest period."""
    return [found for found in partitions if found.start == partitions[-1].start] if partitions else []
