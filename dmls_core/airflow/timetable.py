"""When a job's DAG runs: at each admission of a version, by its schedule, and for backfills."""

from __future__ import annotations

import zlib
from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from airflow.utils.types import DagRunType
from pendulum import DateTime, duration, now, parse

from dmls_core.airflow.jobs.grid import Grid, grid_of


def make_timetable(dag_id: str, record: dict[str, Any], spec: dict[str, Any]) -> SubmissionTimetable:
    """Return the timetable of a job.

    Args:
        dag_id: decides the job's delay within ``[schedule] jitter``.
        record: the job's record as JSON.
        spec: its spec as JSON, perhaps of an earlier release.
    """
    admission = (record["admitted"], record["version"], record["run_key"])
    schedule = spec["schedule"] or {}
    cron = schedule.get("cron")
    has_time = spec["columns"]["time"] is not None
    grid = grid_of(spec["data"]["path"], cron, schedule.get("timezone", "UTC"), has_time=has_time)
    if grid is None:
        return SubmissionTimetable(*admission)
    spread = int(schedule.get("jitter", 0))
    return IntervalTimetable(
        *admission,
        grid.cron,
        grid.timezone,
        scheduled=cron is not None,
        catchup=schedule.get("catchup", False),
        delay=zlib.crc32(dag_id.encode()) % (spread + 1),
    )


class SubmissionTimetable(Timetable):
    """One automatic run for each accepted version of a job.

    The scheduler itself creates the run when the new version of the DAG is parsed, and its unique
    logical date (the time of admission) keeps it from creating the run twice, whatever is killed.

    Args:
        admitted: time of admission, ISO 8601 with a UTC offset.
        version: version of the job in the registry, from 1.
        run_key: key of the run that this version makes.
    """

    description = "Once for each accepted submission"
    periodic = False
    run_ordering = ("logical_date",)

    def __init__(self, admitted: str, version: int, run_key: str) -> None:
        self.admitted = admitted
        self.version = version
        self.run_key = run_key

    @property
    def summary(self) -> str:
        """What Airflow's list of DAGs shows as the schedule."""
        return "On submission"

    def serialize(self) -> dict[str, Any]:
        """Return the arguments, which also make a new DAG version of a new submission."""
        return {"admitted": self.admitted, "version": self.version, "run_key": self.run_key}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """Make the timetable from what ``serialize`` returned."""
        return cls(**data)

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """Give a run that a user triggers the moment of the trigger as its interval."""
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the run of this admission unless it, or a later one, exists already."""
        admitted = self.admission
        if last_automated_data_interval is not None and last_automated_data_interval.end >= admitted:
            return None
        return DagRunInfo.exact(admitted)

    @property
    def admission(self) -> DateTime:
        """The time of admission."""
        admitted = parse(self.admitted)
        if not isinstance(admitted, DateTime):
            raise TypeError(f"admitted is not a date and time: {self.admitted!r}")
        return admitted

    def generate_run_id(
        self, *, run_type: DagRunType, run_after: DateTime, data_interval: DataInterval | None, **extra: Any
    ) -> str:
        """Name the run after the job's version and run key.

        Airflow may note the moment of a new admission some time before it stores the DAG that was parsed
        with it (``[core] min_serialized_dag_update_interval``). The earlier DAG's timetable must not create
        that run: it would name it like its own, and a name that is taken ends the scheduler. The scheduler
        logs what is raised here, and tries again until the new DAG is stored.

        Raises:
            ValueError: the run is that of another version's admission.
        """
        if run_type == DagRunType.SCHEDULED:
            if data_interval is not None and data_interval.end != self.admission:
                raise ValueError(
                    f"the run of {data_interval.end} is not that of version {self.version}, admitted "
                    f"{self.admitted}: it waits until the version that was admitted then is stored"
                )
            return f"submission-{self.version}__{self.run_key}"
        return super().generate_run_id(
            run_type=run_type, run_after=run_after, data_interval=data_interval, **extra
        )


class IntervalTimetable(SubmissionTimetable):
    """A run at each admission, then one for each interval if there is a schedule; backfills of any.

    A scheduled run's interval has ended when the run begins; its logical date is the interval's beginning,
    so that a backfill over the same dates finds the run and does not repeat it unasked.

    Args:
        admitted: as for ``SubmissionTimetable``.
        version: likewise.
        run_key: likewise.
        cron: ends of the intervals.
        timezone: time zone of ``cron``.
        scheduled: whether intervals run by themselves; else they are there for backfills alone.
        catchup: whether intervals that were missed since the admission are made up for.
        delay: seconds from an interval's end to its run, the same at every parse.
    """

    description = "At each accepted submission, then by the job's schedule"
    periodic = True

    def __init__(
        self,
        admitted: str,
        version: int,
        run_key: str,
        cron: str,
        timezone: str,
        *,
        scheduled: bool,
        catchup: bool,
        delay: int,
    ) -> None:
        super().__init__(admitted, version, run_key)
        self.grid = Grid(cron, timezone)
        self.scheduled = scheduled
        self.catchup = catchup
        self.delay = delay

    @property
    def summary(self) -> str:
        """What Airflow's list of DAGs shows as the schedule."""
        if not self.scheduled:
            return "On submission"
        zone = "" if self.grid.timezone == "UTC" else f" {self.grid.timezone}"
        return f"{self.grid.cron}{zone}"

    def serialize(self) -> dict[str, Any]:
        """Return the arguments."""
        return super().serialize() | {
            "cron": self.grid.cron,
            "timezone": self.grid.timezone,
            "scheduled": self.scheduled,
            "catchup": self.catchup,
            "delay": self.delay,
        }

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """Give a run that a user triggers for a date the last interval that has ended then."""
        return self.grid.before(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the admission's run, then the run of the next interval."""
        last = last_automated_data_interval
        # Only a backfill's list has an end; no DAG of a job has one.
        if restriction.latest is not None:
            return self.grid.next_within(last, restriction)
        first = super().next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        if first is not None or last is None or not self.scheduled:
            return first
        of_grid = last if last.start < last.end else self.grid.before(self.admission)
        following = self.grid.after(of_grid)
        if not self.catchup:
            newest = self.grid.before(now("UTC") - duration(seconds=self.delay))
            following = newest if newest.end > following.end else following
        return DagRunInfo(following.end + duration(seconds=self.delay), following)

    def generate_run_id(
        self, *, run_type: DagRunType, run_after: DateTime, data_interval: DataInterval | None, **extra: Any
    ) -> str:
        """Name the admission's run after version and key, any other as Airflow does."""
        if data_interval is None or data_interval.start == data_interval.end:
            return super().generate_run_id(
                run_type=run_type, run_after=run_after, data_interval=data_interval, **extra
            )
        return Timetable.generate_run_id(
            self, run_type=run_type, run_after=run_after, data_interval=data_interval, **extra
        )
