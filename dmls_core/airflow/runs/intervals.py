"""The data intervals of a job, between consecutive times of a cron expression."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from pendulum import DateTime

from dmls_core.spec.partitions import GRIDS, has_fields, parse_pattern

if TYPE_CHECKING:
    from airflow.timetables.interval import CronDataIntervalTimetable

_UNRESTRICTED = TimeRestriction(earliest=None, latest=None, catchup=True)


class Intervals:
    """The half-open intervals between consecutive times of a cron expression, or preset such as ``@weekly``.

    Airflow's timetable computes them. It is created on first use and shared by all jobs with the same
    expression: describing a cron expression in words costs more than the rest of a DAG's parse.
    """

    def __init__(self, cron: str, timezone: str) -> None:
        self.cron = cron
        self.timezone = timezone

    def before(self, moment: DateTime) -> DataInterval:
        """Return the last interval that ends at or before ``moment``."""
        return _timetable(self.cron, self.timezone).infer_manual_data_interval(run_after=moment)

    def after(self, interval: DataInterval) -> DataInterval:
        """Return the interval after ``interval``; raise ``ValueError`` if the cron expression has none."""
        info = self.next_within(interval, _UNRESTRICTED)
        if info is None or info.data_interval is None:
            raise ValueError(f"no interval of {self.cron!r} follows {interval}")
        return info.data_interval

    def next_within(self, last: DataInterval | None, restriction: TimeRestriction) -> DagRunInfo | None:
        """Return the run of the interval after ``last`` that starts within ``restriction``, for backfills."""
        return _timetable(self.cron, self.timezone).next_dagrun_info(
            last_automated_data_interval=last, restriction=restriction
        )

    def ends(self, moment: DateTime) -> Iterator[DateTime]:
        """Yield the ends of the intervals that end after ``moment``: when scheduled runs are due."""
        interval = self.before(moment)
        while True:
            interval = self.after(interval)
            yield interval.end

    def window_start(self, interval: DataInterval, count: int) -> DateTime:
        """Return the start of the first of ``count`` consecutive intervals that end with ``interval``."""
        start = interval.start
        for _ in range(count - 1):
            start = self.before(start).start
        return start


def intervals_of(path: str | None, cron: str | None, timezone: str, *, has_time: bool) -> Intervals | None:
    """Return the intervals of the schedule, else of the partitions, else days; ``None`` without time."""
    if cron is not None:
        return Intervals(cron, timezone)
    if path is not None and has_fields(path):
        return Intervals(GRIDS[parse_pattern(path).unit], timezone)
    return Intervals(GRIDS["day"], timezone) if has_time else None


@lru_cache(maxsize=4096)
def _timetable(cron: str, timezone: str) -> CronDataIntervalTimetable:
    from airflow.timetables.interval import CronDataIntervalTimetable
    from pendulum import timezone as find_zone

    return CronDataIntervalTimetable(cron, find_zone(timezone))
