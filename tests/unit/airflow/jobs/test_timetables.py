"""Timetables: the run of an admission, one run for each interval, and the runs of a backfill."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta

import pendulum
import pytest
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.utils.types import DagRunType
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.airflow.jobs import timetables
from dmls_core.airflow.jobs.timetables import (
    Intervals,
    IntervalTimetable,
    SubmissionTimetable,
    intervals_of,
    make_timetable,
)
from dmls_core.store import Registry, open_store
from tests.unit.store.fakes import NOW, FakeSpec, data

ADMITTED = "2026-03-04T05:06:07.123456+00:00"  # a Wednesday
ANY = TimeRestriction(earliest=None, latest=None, catchup=False)


def at(text: str) -> pendulum.DateTime:
    return pendulum.instance(datetime.fromisoformat(text).replace(tzinfo=UTC))


def interval(start: str, end: str) -> DataInterval:
    return DataInterval(at(start), at(end))


def weekly(**changes: object) -> IntervalTimetable:
    arguments = {"cron": "0 6 * * 1", "timezone": "UTC", "scheduled": True, "catchup": False, "delay": 0}
    return IntervalTimetable(ADMITTED, 3, "0123456789abcdef", **arguments | changes)


def submission(version: int = 1) -> SubmissionTimetable:
    return SubmissionTimetable(ADMITTED, version, "0123456789abcdef")


def next_run(last: DataInterval | None):
    return submission().next_dagrun_info(last_automated_data_interval=last, restriction=ANY)


def test_the_first_run_is_at_the_admission(clock):
    clock("2026-03-04T05:10")
    assert next_run(None).logical_date == pendulum.parse(ADMITTED)


def test_no_second_run_for_the_same_admission():
    assert next_run(DataInterval.exact(pendulum.parse(ADMITTED))) is None


def test_a_later_admission_makes_another_run():
    assert next_run(DataInterval.exact(pendulum.parse("2026-03-04T05:06:06+00:00"))) is not None


def test_an_admission_in_the_future_of_a_clock_that_was_set_back_runs_now(clock):
    clock("2026-03-03T05:06")
    found = next_run(None)
    assert found.logical_date == pendulum.parse(ADMITTED)
    assert found.run_after == at("2026-03-03T05:06")


def test_a_version_whose_run_airflow_db_clean_has_deleted_does_not_run_again(clock):
    clock("2026-04-20T00:00")
    assert next_run(None) is None
    assert next_run(DataInterval.exact(pendulum.parse("2026-03-04T05:06:06+00:00"))) is not None
    for catchup in (False, True):
        assert follow(weekly(catchup=catchup), None).run_after == at("2026-04-20T06:00")
    assert follow(weekly(scheduled=False), None) is None


@given(steps=st.lists(st.integers(-86_400, 86_400), min_size=1, max_size=12))
def test_each_version_runs_once_under_any_clock(steps: list[int]):
    with tempfile.TemporaryDirectory() as folder:
        registry, moment, runs = Registry(open_store(folder)), NOW, []
        last = DataInterval.exact(pendulum.instance(NOW - timedelta(days=30)))
        for number, step in enumerate(steps):
            moment += timedelta(seconds=step)
            record = registry.accept(
                FakeSpec(str(number)), "lab", "iris", [data("e", job="lab/iris")], moment
            )
            made = SubmissionTimetable(record.admitted, record.version, record.run_key)
            while found := made.next_dagrun_info(last_automated_data_interval=last, restriction=ANY):
                last = found.data_interval
                runs.append(record.version)
        assert runs == list(range(1, len(steps) + 1))


def test_the_run_of_another_admission_waits_for_its_own_version():
    own = DataInterval.exact(pendulum.parse(ADMITTED))
    other = DataInterval.exact(pendulum.parse(ADMITTED).add(seconds=20))

    def named(interval: DataInterval) -> str:
        return submission(1).generate_run_id(
            run_type=DagRunType.SCHEDULED, run_after=interval.end, data_interval=interval
        )

    assert named(own) == "submission-1__0123456789abcdef"
    with pytest.raises(ValueError, match="does not belong to version 1"):
        named(other)


def test_a_submission_timetable_survives_serialization_and_names_the_run_after_its_key():
    again = SubmissionTimetable.deserialize(submission(3).serialize())
    run_id = again.generate_run_id(
        run_type=DagRunType.SCHEDULED, run_after=pendulum.now(), data_interval=None
    )
    assert run_id == "submission-3__0123456789abcdef"


# -- intervals -----------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    def _set(text: str) -> None:
        monkeypatch.setattr(timetables, "now", {"UTC": at(text)}.__getitem__)

    return _set


def follow(made: IntervalTimetable, last: DataInterval | None, **restriction: object):
    return made.next_dagrun_info(last_automated_data_interval=last, restriction=ANY._replace(**restriction))


def test_the_admission_comes_first_and_then_the_interval_that_it_fell_into(clock) -> None:
    clock("2026-03-04T05:10")
    first = follow(weekly(), None)
    assert first.data_interval == DataInterval.exact(pendulum.parse(ADMITTED))
    second = follow(weekly(delay=40), first.data_interval)
    assert second.data_interval == interval("2026-03-02T06:00", "2026-03-09T06:00")
    assert second.run_after == at("2026-03-09T06:00:40")
    third = follow(weekly(), second.data_interval)
    assert third.data_interval == interval("2026-03-09T06:00", "2026-03-16T06:00")


def test_a_new_version_runs_at_its_admission_and_no_interval_runs_twice(clock) -> None:
    clock("2026-03-04T05:10")
    before = interval("2026-02-23T06:00", "2026-03-02T06:00")
    assert follow(weekly(), before).run_after == pendulum.parse(ADMITTED)
    after = follow(weekly(), DataInterval.exact(pendulum.parse(ADMITTED)))
    assert after.logical_date == at("2026-03-02T06:00")


@pytest.mark.parametrize(("catchup", "start"), [(False, "2026-05-11T06:00"), (True, "2026-03-09T06:00")])
def test_what_was_missed_is_made_up_for_only_if_asked(clock, catchup: bool, start: str) -> None:
    clock("2026-05-20T00:00")
    found = follow(weekly(catchup=catchup), interval("2026-03-02T06:00", "2026-03-09T06:00"))
    assert found.logical_date == at(start)


def test_a_job_admitted_long_after_its_data_makes_no_run_for_the_past(clock) -> None:
    clock("2026-03-04T05:10")
    for catchup in (True, False):
        first = follow(weekly(catchup=catchup), None)
        assert first.run_after == pendulum.parse(ADMITTED)
        assert follow(weekly(catchup=catchup), first.data_interval).run_after == at("2026-03-09T06:00")


@pytest.mark.parametrize("scheduled", [True, False])
def test_a_backfill_lists_the_intervals_that_begin_in_its_range(scheduled: bool) -> None:
    made, found, last = weekly(scheduled=scheduled), [], None
    bounds = {"earliest": at("2026-01-01"), "latest": at("2026-01-26T06:00"), "catchup": True}
    while info := follow(made, last, **bounds):
        last = info.data_interval
        found.append(info.logical_date.format("YYYY-MM-DD[T]HH:mm"))
    assert found == ["2026-01-05T06:00", "2026-01-12T06:00", "2026-01-19T06:00", "2026-01-26T06:00"]


def test_without_a_schedule_nothing_follows_the_admission() -> None:
    assert follow(weekly(scheduled=False), DataInterval.exact(pendulum.parse(ADMITTED))) is None


def test_clocks_that_change_make_a_day_shorter() -> None:
    day = Intervals("@daily", "Europe/Vienna").before(at("2026-03-30T00:00"))
    assert day == interval("2026-03-28T23:00", "2026-03-29T22:00")


def test_a_window_reaches_back_over_intervals() -> None:
    intervals = Intervals("@monthly", "UTC")
    march = intervals.before(at("2026-04-01"))
    assert [intervals.window_start(march, count) for count in (1, 2, 4)] == [
        at("2026-03-01"), at("2026-02-01"), at("2025-12-01"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "cron", "has_time", "expected"),
    [
        ("data/{date}.csv", None, False, "0 0 * * *"),
        ("data/{date}/{hour}.csv", None, False, "0 * * * *"),
        ("{year}-{month}.csv", None, True, "0 0 1 * *"),
        ("{year}.csv", "@weekly", False, "@weekly"),
        ("all.csv", None, True, "0 0 * * *"),
    ],
)
def test_cron_or_the_partition_names_define_the_intervals(path, cron, has_time, expected) -> None:
    assert intervals_of(path, cron, "UTC", has_time=has_time).cron == expected


def test_a_job_without_intervals_cannot_be_backfilled() -> None:
    record = {"admitted": ADMITTED, "version": 1, "run_key": "k"}
    spec = {"schedule": None, "columns": {"time": None}, "data": {"path": "a.csv"}}
    made = make_timetable("dmls.lab.iris", record, spec)
    assert type(made) is SubmissionTimetable
    assert not made.periodic  # Airflow answers a backfill with 422


def test_delays_are_spread_and_stay_the_same() -> None:
    record = {"admitted": ADMITTED, "version": 1, "run_key": "k"}
    schedule = {"cron": "@weekly", "timezone": "UTC", "catchup": False, "jitter": 300.0}
    spec = {"schedule": schedule, "columns": {"time": "t"}, "data": {"path": None}}
    made = [make_timetable(f"dmls.lab.job{number}", record, spec) for number in range(1000)]
    delays = [table.delay for table in made]
    assert delays == [make_timetable(f"dmls.lab.job{n}", record, spec).delay for n in range(1000)]
    assert min(delays) >= 0
    assert max(delays) <= 300
    assert max(delays.count(second) for second in set(delays)) < 20


def test_an_interval_timetable_survives_serialization_and_names_its_runs() -> None:
    made = weekly(timezone="Europe/Vienna", delay=7)
    again = IntervalTimetable.deserialize(made.serialize())
    assert again.serialize() == made.serialize()
    moment = pendulum.parse(ADMITTED)
    names = [
        again.generate_run_id(run_type=DagRunType.SCHEDULED, run_after=moment, data_interval=found)
        for found in (DataInterval.exact(moment), interval("2026-03-02", "2026-03-09"))
    ]
    assert names[0] == "submission-3__0123456789abcdef"
    assert names[1].startswith("scheduled__2026-03-")


@pytest.mark.parametrize(
    "cron", ["@hourly", "0 6 * * 1", "30 2 * * *", "@monthly", "*/20 * * * *", "0 0 29 2 *"]
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna", "America/St_Johns"])
def test_no_interval_runs_twice_and_none_is_skipped(clock, cron: str, zone: str) -> None:
    clock("2100-01-01")
    made = weekly(cron=cron, timezone=zone, catchup=True, delay=5)
    last = follow(made, None).data_interval
    ends = []
    for _ in range(200 if "29" not in cron else 5):
        last = follow(made, last).data_interval
        assert not ends or last.start == ends[-1]
        assert last.start < last.end
        ends.append(last.end)
    assert ends[0] > pendulum.parse(ADMITTED)
