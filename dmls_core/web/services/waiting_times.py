"""When waiting trainers start: the pool's slots played forward with the durations of earlier searches."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

_FEWEST = 3
"""Number of a job's searches from which their range is the error; with fewer it is a factor of 2."""

_OVERRUN = 0.1
"""A search that takes longer than expected is expected to take this share of its time more."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How long something takes or when it begins, in seconds: expected, and the range of likely values."""

    low: float
    middle: float
    high: float

    def left(self, elapsed: float) -> Duration:
        """Return what is left of the duration of something that began ``elapsed`` seconds ago."""
        overrun = _OVERRUN * elapsed
        return Duration(*sorted(max(end - elapsed, overrun) for end in astuple(self)))


@dataclass(frozen=True, slots=True)
class Start:
    """When a waiting run starts: expected, and the range of likely times; ISO 8601 in UTC."""

    earliest: str
    expected: str
    latest: str

    @classmethod
    def of(cls, starts: Duration | None) -> Start | None:
        """Return the times that are ``starts`` from now."""
        if starts is None:
            return None
        now = datetime.now(UTC)
        times = (now + timedelta(seconds=seconds) for seconds in astuple(starts))
        return cls(*(time.isoformat(timespec="seconds") for time in times))


def expected_duration(earlier: Sequence[float]) -> Duration | None:
    """Return the duration of a job's next search, from those of its last ones; ``None`` if it has none."""
    if not earlier:
        return None
    middle = statistics.median(earlier)
    if len(earlier) < _FEWEST:
        return Duration(middle / 2, middle, 2 * middle)
    return Duration(min(earlier), middle, max(earlier))


def expected_starts(
    slots: int, running: Sequence[Duration | None], waiting: Sequence[Duration | None]
) -> list[Duration | None]:
    """Return when each waiting trainer starts, in seconds from now; ``None`` behind an unknown duration.

    Args:
        slots: slots of the pool, at least 1.
        running: what is left of the trainers that hold a slot.
        waiting: durations of the trainers that wait, in the order in which they get a slot.
    """
    if None in running:
        return [None] * len(waiting)
    left = [astuple(duration) for duration in running if duration]
    durations = [astuple(duration) for duration in takewhile(bool, waiting) if duration]
    # The first trainer of unknown duration has a known start.
    ahead = [*durations, (0.0, 0.0, 0.0)][: len(waiting)]
    bounds = [_play(slots, [end[i] for end in left], [end[i] for end in ahead]) for i in range(3)]
    starts = [Duration(*start) for start in zip(*bounds, strict=True)]
    return [*starts, *[None] * (len(waiting) - len(starts))]


def _play(slots: int, left: list[float], durations: list[float]) -> list[float]:
    # If a pool was made smaller, more trainers run than it has slots: the first ones to end free none.
    free = [0.0] * (slots - len(left)) + sorted(left)[max(len(left) - slots, 0) :]
    heapq.heapify(free)
    starts = []
    for duration in durations:
        starts.append(free[0])
        heapq.heapreplace(free, free[0] + duration)
    return starts
