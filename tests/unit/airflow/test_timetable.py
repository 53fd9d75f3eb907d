"""The timetable: one run for each admission, however often it is asked."""

from __future__ import annotations

import pendulum
import pytest
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.utils.types import DagRunType

from dmls_core.airflow.timetable import SubmissionTimetable

ADMITTED = "2026-03-04T05:06:07.123456+00:00"
NO_RESTRICTION = TimeRestriction(earliest=None, latest=None, catchup=False)


def made(version: int = 1) -> SubmissionTimetable:
    return SubmissionTimetable(ADMITTED, version, "0123456789abcdef")


def next_run(last: DataInterval | None):
    return made().next_dagrun_info(last_automated_data_interval=last, restriction=NO_RESTRICTION)


def test_the_first_run_is_at_the_admission():
    assert next_run(None).logical_date == pendulum.parse(ADMITTED)


def test_no_second_run_for_the_same_admission():
    assert next_run(DataInterval.exact(pendulum.parse(ADMITTED))) is None


def test_a_later_admission_makes_another_run():
    assert next_run(DataInterval.exact(pendulum.parse("2026-03-04T05:06:06+00:00"))) is not None


def test_the_run_of_another_admission_waits_for_its_own_version():
    own = DataInterval.exact(pendulum.parse(ADMITTED))
    other = DataInterval.exact(pendulum.parse(ADMITTED).add(seconds=20))

    def named(interval: DataInterval) -> str:
        return made(1).generate_run_id(
            run_type=DagRunType.SCHEDULED, run_after=interval.end, data_interval=interval
        )

    assert named(own) == "submission-1__0123456789abcdef"
    with pytest.raises(ValueError, match="not that of version 1"):
        named(other)


def test_it_survives_serialisation_and_names_the_run_after_its_key():
    again = SubmissionTimetable.deserialize(made(3).serialize())
    run_id = again.generate_run_id(
        run_type=DagRunType.SCHEDULED, run_after=pendulum.now(), data_interval=None
    )
    assert run_id == "submission-3__0123456789abcdef"
