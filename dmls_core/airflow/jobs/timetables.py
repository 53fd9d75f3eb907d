"""Timetables of jobs: a run at each admission of a version, by the schedule, and for backfills.

Airflow's serialized DAGs store the class paths.
"""

from __future__ import annotations

import zlib
from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from airflow.utils.types import DagRunType
from pendulum import DateTime, duration, now, parse

from dmls_core.airflow.runs.intervals import Intervals, intervals_of

_CLEANED_AFTER = duration(days=30)
"""Age from which an admission without a run had one, which ``airflow db clean`` has deleted."""


def make_timetable(dag_id: str, record: dict[str, Any], spec: dict[str, Any]) -> SubmissionTimetable:
    """Return a job's timetable; ``dag_id`` is hashed to its delay within ``[schedule] jitter``."""
    admission = (record["admitted"], record["version"], record["run_key"])
    schedule = spec["schedule"] or {}
    cron = schedule.get("cron")
    has_time = spec["columns"]["time"] is not None
    path = (spec["data"].get("source") or spec["data"])["path"]
    intervals = intervals_of(path, cron, schedule.get("timezone", "UTC"), has_time=has_time)
    if intervals is None:
        return SubmissionTimetable(*admission)
    spread = int(schedule.get("jitter", 0))
    return IntervalTimetable(
        *admission,
        intervals.cron,
        intervals.timezone,
        scheduled=cron is not None,
        catchup=schedule.get("catchup", False),
        delay=zlib.crc32(dag_id.encode()) % (spread + 1),
    )


def submission_run_id(version: int, run_key: str) -> str:
    """Return the id of the run of an accepted version."""
    return f"submission-{version}__{run_key}"


class SubmissionTimetable(Timetable):
    """Create one run for each accepted version of a job.

    The scheduler creates the run when it reads the new version of the DAG. Its logical date is the time of
    admission (``admitted``, ISO 8601 with a UTC offset): a restarted scheduler does not create it twice.
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
        """The schedule in Airflow's list of DAGs."""
        return "On submission"

    def serialize(self) -> dict[str, Any]:
        """Return the arguments; a new submission changes them and so makes a new DAG version."""
        return {"admitted": self.admitted, "version": self.version, "run_key": self.run_key}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """Build the timetable from the result of ``serialize``."""
        return cls(**data)

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """Return an interval of length zero at the time of a manual trigger."""
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the run of this admission, unless that run or a later one exists or is deleted by now."""
        admitted = self.admission
        if last_automated_data_interval is None:
            if self.is_old:
                return None
        elif last_automated_data_interval.end >= admitted:
            return None
        # A clock that was ahead at the admission does not delay the run.
        return DagRunInfo(min(admitted, now("UTC")), DataInterval.exact(admitted))

    @property
    def is_old(self) -> bool:
        """Whether the admission is so old that its run, if Airflow has none, was deleted."""
        return self.admission < now("UTC") - _CLEANED_AFTER

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
        """Return a run id made of the job's version and run key; raise ``ValueError`` for another admission.

        Airflow may read the time of a new admission before it stores the DAG that belongs to it (``[core]
        min_serialized_dag_update_interval``). The old DAG's timetable would give the run an id that exists,
        which ends the scheduler. The error raised here is only logged, and retried until the DAG is stored.
        """
        if run_type == DagRunType.SCHEDULED:
            if data_interval is not None and data_interval.end != self.admission:
                raise ValueError(
                    f"the run of {data_interval.end} does not belong to version {self.version}, admitted "
                    f"{self.admitted}: it starts once Airflow has stored the DAG of that version"
                )
            return submission_run_id(self.version, self.run_key)
        return super().generate_run_id(
            run_type=run_type, run_after=run_after, data_interval=data_interval, **extra
        )


class IntervalTimetable(SubmissionTimetable):
    """Create a run at each admission, then one for each interval of the schedule; allow backfills.

    A scheduled run starts ``delay`` seconds after its interval has ended. Its logical date is the interval's
    start, so that a backfill over the same dates does not repeat the run unless asked to. Without
    ``scheduled`` the intervals are only for backfills; ``catchup`` runs those missed since the admission.
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
        self.intervals = Intervals(cron, timezone)
        self.scheduled = scheduled
        self.catchup = catchup
        self.delay = delay

    @property
    def summary(self) -> str:
        """The schedule in Airflow's list of DAGs."""
        if not self.scheduled:
            return "On submission"
        zone = "" if self.intervals.timezone == "UTC" else f" {self.intervals.timezone}"
        return f"{self.intervals.cron}{zone}"

    def serialize(self) -> dict[str, Any]:
        """Return the arguments."""
        return super().serialize() | {
            "cron": self.intervals.cron,
            "timezone": self.intervals.timezone,
            "scheduled": self.scheduled,
            "catchup": self.catchup,
            "delay": self.delay,
        }

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """Return the last interval that has ended at the date of a manual trigger."""
        return self.intervals.before(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the run of the admission, then the run of the next interval."""
        last = last_automated_data_interval
        # Only a backfill has a latest date; the DAG of a job has no end date.
        if restriction.latest is not None:
            return self.intervals.next_within(last, restriction)
        first = super().next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        if first is not None or not self.scheduled:
            return first
        newest = self.intervals.before(now("UTC") - duration(seconds=self.delay))
        if last is None:
            # All runs are deleted, and those of past intervals were among them.
            scheduled = newest
        else:
            scheduled = last if last.start < last.end else self.intervals.before(self.admission)
        next_interval = self.intervals.after(scheduled)
        if not self.catchup:
            next_interval = newest if newest.end > next_interval.end else next_interval
        return DagRunInfo(next_interval.end + duration(seconds=self.delay), next_interval)

    def generate_run_id(
        self, *, run_type: DagRunType, run_after: DateTime, data_interval: DataInterval | None, **extra: Any
    ) -> str:
        """Return the run id of the admission's run, else Airflow's."""
        if data_interval is None or data_interval.start == data_interval.end:
            return super().generate_run_id(
                run_type=run_type, run_after=run_after, data_interval=data_interval, **extra
            )
        return Timetable.generate_run_id(
            self, run_type=run_type, run_after=run_after, data_interval=data_interval, **extra
        )
