"""When a job's DAG runs: once for each admitted version, at the time of its admission."""

from __future__ import annotations

from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from airflow.utils.types import DagRunType
from pendulum import DateTime, parse


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
        admitted = parse(self.admitted)
        if not isinstance(admitted, DateTime):
            raise TypeError(f"admitted is not a date and time: {self.admitted!r}")
        if last_automated_data_interval is not None and last_automated_data_interval.end >= admitted:
            return None
        return DagRunInfo.exact(admitted)

    def generate_run_id(
        self, *, run_type: DagRunType, run_after: DateTime, data_interval: DataInterval | None, **extra: Any
    ) -> str:
        """Name the run after the job's version and run key."""
        if run_type == DagRunType.SCHEDULED:
            return f"submission-{self.version}__{self.run_key}"
        return super().generate_run_id(
            run_type=run_type, run_after=run_after, data_interval=data_interval, **extra
        )
