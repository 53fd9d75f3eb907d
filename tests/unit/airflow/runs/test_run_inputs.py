"""Which data a run reads: its own interval's, the window's, and never anything later."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pendulum
import pytest
from airflow.timetables.base import DataInterval

from dmls_core.airflow.runs.intervals import intervals_of
from dmls_core.airflow.runs.run_inputs import InputSelector, RunInputs, check_size
from dmls_core.errors import DataError
from dmls_core.models import load_spec
from dmls_core.store import Registry, open_store

SPEC = """
model = "random-forest-classifier"
[columns]
target = "y"
{columns}
[data]
path = "{path}"
window = {window}
"""
WEEKLY = '[schedule]\ncron = "0 6 * * 1"\n'


def at(text: str) -> pendulum.DateTime:
    return pendulum.instance(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.fixture
def selector(root):
    store = open_store(str(root))

    def _selector(
        *files: str, path: str = "data/{date}.csv", window: object = 1, more: str = WEEKLY, columns: str = ""
    ) -> InputSelector:
        infos = [store.put(f"incoming/lab/job/{name}", name.encode()) for name in files]
        store.put("incoming/lab/job/spec.toml", b"")
        window = f'"{window}"' if isinstance(window, str) else window
        spec = load_spec((SPEC.format(path=path, window=window, columns=columns) + more).encode())
        pinned = [] if spec.chosen_by_run else infos[-1:]
        record = Registry(store).accept(spec, "lab", "job", pinned, datetime(2026, 2, 11, tzinfo=UTC))
        cron = spec.schedule.cron if spec.schedule else None
        grid = intervals_of(spec.data.path, cron, spec.timezone, has_time=spec.columns.time is not None)
        return InputSelector(store, record, spec, grid)

    return _selector


def names(inputs: RunInputs | None) -> list[str]:
    assert inputs
    return [item.key.removeprefix("incoming/lab/job/") for item in inputs.data]


DAYS = [f"data/2026-01-{day:02d}.csv" for day in range(1, 32)]
WEEK = DataInterval(at("2026-01-12T06:00"), at("2026-01-19T06:00"))


@pytest.mark.parametrize(("window", "first", "last"), [(1, 12, 18), (2, 5, 18), (100, 1, 18), ("all", 1, 18)])
def test_a_run_reads_its_window_and_no_day_that_ends_later(selector, window, first, last) -> None:
    inputs = selector(*DAYS, window=window).select(WEEK)
    assert names(inputs) == DAYS[first - 1 : last]


def test_every_day_is_of_one_week(selector) -> None:
    made = selector(*DAYS)
    interval, read = made.intervals.before(at("2026-01-05T06:00")), []
    while interval.end < at("2026-02-09"):
        read += names(made.select(interval))
        interval = made.intervals.after(interval)
    assert read == DAYS


def test_what_arrives_later_changes_nothing_about_a_run(selector) -> None:
    before = selector(*DAYS[:18], window="all").select(WEEK)
    after = selector(*DAYS, "data/2026-02-01.csv", "data/2999-01-01.csv", window="all").select(WEEK)
    assert after == before
    assert json.loads(json.dumps(after.as_json())) == after.as_json()
    assert RunInputs.from_json(after.as_json()) == after


def test_a_file_whose_name_no_store_can_hold_is_left_out(selector, root) -> None:
    made = selector(*DAYS, path="data/{date}*.csv")
    (root / "incoming/lab/job/data/2026-01-18\x01.csv").write_bytes(b"x")
    assert names(made.select(WEEK)) == DAYS[11:18]


def test_runs_of_two_intervals_differ_even_on_the_same_files(selector) -> None:
    made = selector(*DAYS[:18], "data/2026-01-20.csv", window="all")
    keys = {made.select(interval).run_key for interval in (WEEK, made.intervals.before(WEEK.start))}
    assert len(keys) == 2


def test_a_replaced_partition_makes_another_run(selector, root) -> None:
    made = selector(*DAYS[:18])
    before = made.select(WEEK)
    made.store.put("incoming/lab/job/data/2026-01-15.csv", b"better")
    after = made.select(WEEK)
    assert names(after) == names(before)
    assert after.run_key != before.run_key


def test_a_partition_that_has_not_arrived_yields_no_inputs(selector) -> None:
    made = selector(*DAYS[:11], *DAYS[20:], window="all")
    assert made.select(WEEK) is None


def test_the_newest_ended_interval_with_data(selector) -> None:
    made = selector(*DAYS[:20])
    assert made.latest_interval(at("2026-07-01")).end == at("2026-01-26T06:00")
    assert made.latest_interval(at("2026-01-20T12:00")).end == at("2026-01-19T06:00")


def test_an_interval_that_has_only_begun_is_better_than_none(selector) -> None:
    made = selector("data/2026-01-12.csv")
    assert made.latest_interval(at("2026-01-14")) == WEEK


def test_a_job_on_data_takes_the_partition_that_came(selector) -> None:
    made = selector(*DAYS[:20], more='[schedule]\non = "data"\n', window=3)
    interval = made.admitted_interval()
    assert interval == DataInterval(at("2026-01-20"), at("2026-01-21"))
    assert names(made.select(interval)) == DAYS[17:20]


def test_one_growing_file_is_read_as_it_is(selector) -> None:
    made = selector("data.csv", path="data.csv", columns='time = "t"')
    first = made.select(WEEK)
    assert names(first) == ["data.csv"]
    assert first.since == "2026-01-12T06:00:00+00:00"
    made.store.put("incoming/lab/job/data.csv", b"grown")
    assert made.select(WEEK).run_key != first.run_key
    made.store.delete("incoming/lab/job/data.csv")
    with pytest.raises(DataError, match="no longer exists"):
        made.select(WEEK)


def test_data_that_was_admitted_as_a_whole_must_be_unchanged(selector) -> None:
    made = selector("data.csv", path="data.csv", columns='time = "t"', more="")
    day = made.intervals.before(at("2026-01-15"))
    assert names(made.select(day)) == ["data.csv"]
    assert made.admitted_interval() is None
    made.store.put("incoming/lab/job/data.csv", b"other")
    with pytest.raises(DataError, match="was replaced after"):
        made.select(day)


def test_a_window_has_a_limit(selector) -> None:
    data = selector(*DAYS[:18]).select(WEEK).data
    check_size(data, sum(item.size for item in data))
    with pytest.raises(DataError, match=r"data\.window.*too large"):
        check_size(data, 10)
