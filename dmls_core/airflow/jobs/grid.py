"""The intervals of time that a job's data is cut into."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from pendulum import DateTime

from dmls_core.spec.partitions import GRIDS, has_fields, parse_pattern

if TYPE_CHECKING:
    from airflow.timetables.interval import CronDataIntervalTimetable

FOREVER = TimeRestriction(earliest=None, latest=None, catchup=True)


class Grid:
    """Intervals between the moments of a cron expression, each with its beginning and without its end.

    Airflow's own timetable computes them. It is made when the first interval is asked for, and shared by
    all jobs with that expression: describing cron in words costs more than all else of a DAG's parse.

    Args:
        cron: five fields, or a word such as ``@weekly``.
        timezone: name in the IANA database.
    """

    def __init__(self, cron: str, timezone: str) -> None:
        self.cron = cron
        self.timezone = timezone

    def before(self, moment: DateTime) -> DataInterval:
        """Return the last interval that has ended at ``moment``."""
        return _timetable(self.cron, self.timezone).infer_manual_data_interval(run_after=moment)

    def after(self, interval: DataInterval) -> DataInterval:
        """Return the interval that follows one of the grid."""
        info = _timetable(self.cron, self.timezone).next_dagrun_info(
            last_automated_data_interval=interval, restriction=FOREVER
        )
        if info is None or info.data_interval is None:
            raise ValueError(f"nothing follows {interval} in {self.cron}")
        return info.data_interval

    def next_within(self, last: DataInterval | None, restriction: TimeRestriction) -> DagRunInfo | None:
        """Return the run of the next interval that begins within the bounds, for a backfill's list."""
        return _timetable(self.cron, self.timezone).next_dagrun_info(
            last_automated_data_interval=last, restriction=restriction
        )

    def window(self, interval: DataInterval, count: int) -> DateTime:
        """Return the beginning of the first of ``count`` intervals, ``interval`` being the last."""
        start = interval.start
        for _ in range(count - 1):
            start = self.before(start).start
        return start


def grid_of(path: str | None, cron: str | None, timezone: str, *, has_time: bool) -> Grid | None:
    """Return the grid of a spec; ``None`` if nothing tells when its data is of.

    A schedule's cron is the grid. Without one it is the finest field of the partitions' names, or days
    where a column tells the time.
    """
    if cron is not None:
        return Grid(cron, timezone)
    if path is not None and has_fields(path):
        return Grid(GRIDS[parse_pattern(path).unit], timezone)
    return Grid(GRIDS["day"], timezone) if has_time else None


@cache
def _timetable(cron: str, timezone: str) -> CronDataIntervalTimetable:
    from airflow.timetables.interval import CronDataIntervalTimetable
    from pendulum import timezone as find_zone

    return CronDataIntervalTimetable(cron, find_zone(timezone))
