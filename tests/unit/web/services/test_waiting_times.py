"""When waiting trainers start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dmls_core.web.services.waiting_times import Duration, expected_duration, expected_starts

SECONDS = st.floats(0, 10_000)
ENDS = st.tuples(SECONDS, SECONDS, SECONDS).map(sorted)
DURATIONS = st.lists(ENDS.map(lambda ends: Duration(*ends)), max_size=9)


def exact(*seconds: float) -> list[Duration]:
    return [Duration(value, value, value) for value in seconds]


def middles(starts: list[Duration | None]) -> list[float | None]:
    return [start and start.middle for start in starts]


def test_one_slot_serves_one_after_the_other():
    assert middles(expected_starts(1, exact(30), exact(100, 50, 10))) == [30, 130, 180]


def test_the_slot_that_is_free_first_takes_the_next():
    assert middles(expected_starts(2, exact(30, 100), exact(200, 10, 10))) == [30, 100, 110]
    assert middles(expected_starts(3, exact(30), exact(5, 5, 5))) == [0, 0, 5]


def test_a_pool_that_was_made_smaller_frees_no_slot_at_first():
    assert middles(expected_starts(1, exact(10, 20, 30), exact(5))) == [30]


def test_what_waits_behind_an_unknown_duration_has_no_start():
    assert middles(expected_starts(1, exact(10), [*exact(5), None, *exact(5)])) == [10, 15, None]
    assert middles(expected_starts(2, [None], exact(5))) == [None]


def test_the_duration_is_the_median_of_the_last_searches_and_their_range():
    assert expected_duration([]) is None
    assert expected_duration([60]) == Duration(30, 60, 120)
    assert expected_duration([60, 300, 80, 70]) == Duration(60, 75, 300)


def test_a_search_that_takes_longer_than_ever_has_something_left():
    assert Duration(30, 60, 120).left(20) == Duration(10, 40, 100)
    assert Duration(30, 60, 120).left(100) == Duration(10, 10, 20)
    assert Duration(30, 60, 120).left(1000) == Duration(100, 100, 100)


@given(slots=st.integers(1, 5), running=DURATIONS, waiting=DURATIONS)
def test_starts_are_in_order_and_within_their_bounds(slots, running, waiting):
    starts = expected_starts(slots, running, waiting)

    assert len(starts) == len(waiting)
    assert all(start and start.low <= start.middle <= start.high for start in starts)
    assert middles(starts) == sorted(middles(starts))
