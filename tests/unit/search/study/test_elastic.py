"""When helpers join a search, and which of them give their slots back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.search.study.elastic import (
    NOTICE_SECONDS,
    PASSED_OVER_SECONDS,
    SETTLE_SECONDS,
    Helper,
    SlotReturns,
    joining,
)


@pytest.mark.parametrize(
    ("progress", "when", "eager"),
    [
        (None, "later", "now"),
        ({"state": "loading"}, "later", "now"),
        ({"state": "searching", "remaining_seconds": None}, "now", "now"),
        ({"state": "searching", "remaining_seconds": 600.0}, "now", "now"),
        ({"state": "searching", "remaining_seconds": 6.0}, "later", "now"),
        ({"state": "refitting"}, "never", "never"),
        ({"state": "failed"}, "never", "never"),
    ],
)
def test_a_helper_joins_a_search_that_is_worth_its_start(progress, when, eager):
    assert joining(progress) == when
    assert joining(progress, eager=True) == eager


@pytest.fixture
def returns() -> SlotReturns:
    """Return slots of two searches: ``a`` with three helpers, ``b`` with one."""
    found = SlotReturns()
    for helper in HELPERS:
        found.add(helper)
    return found


HELPERS = [Helper("a", 1, 0.0), Helper("a", 2, 0.0), Helper("a", 3, 0.0), Helper("b", 1, 0.0)]


def test_one_helper_leaves_for_each_run_and_the_largest_search_gives_first(returns):
    assert returns.leaving([], 50.0) == {}
    assert returns.leaving([50.0], 50.0 + NOTICE_SECONDS / 2) == {}, "with a free slot it starts sooner"
    assert returns.leaving([50.0], 60.0) == {HELPERS[2]: 60.0}
    assert returns.leaving([50.0], 62.0) == {HELPERS[2]: 60.0}
    assert list(returns.leaving([50.0, 52.0, 54.0], 62.0)) == [HELPERS[2], HELPERS[1], HELPERS[3]]


def test_a_slot_that_was_given_back_is_for_the_run_that_is_about_to_start(returns):
    returns.leaving([50.0], 60.0)
    returns.remove(HELPERS[2], 61.0)

    assert returns.leaving([50.0], 63.0) == {}
    assert returns.leaving([50.0], 61.0 + SETTLE_SECONDS) == {HELPERS[1]: 61.0 + SETTLE_SECONDS}


def test_a_run_that_has_started_leaves_the_next_one_a_helper_of_its_own(returns):
    assert len(returns.leaving([50.0], 60.0)) == 1
    returns.remove(HELPERS[2], 61.0)

    assert list(returns.leaving([55.0], 62.0)) == [HELPERS[1]]


def test_a_run_that_airflow_passed_over_moves_no_helper(returns):
    returns.remove(HELPERS[3], 0.0)
    late = Helper("b", 1, 100.0 + PASSED_OVER_SECONDS)
    returns.add(late)

    leaving = returns.leaving([99.0], 300.0)

    assert late not in leaving
    assert len(leaving) == 1


@given(
    helpers=st.lists(
        st.builds(Helper, st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 50).map(float)),
        unique=True,
    ),
    waiting=st.lists(st.integers(0, 200).map(float)),
    ends=st.lists(st.integers(0, 20)),
)
def test_never_more_helpers_leave_than_runs_wait_and_each_helper_is_asked_once(helpers, waiting, ends):
    returns = SlotReturns()
    for helper in helpers:
        returns.add(helper)
    asked: dict[Helper, float] = {}
    for step, now in enumerate(range(60, 260, 10)):
        due = [moment for moment in waiting if moment <= now]
        leaving = returns.leaving(due, float(now))
        old = {moment for moment in due if now - moment >= NOTICE_SECONDS}
        assert len(leaving) <= len([moment for moment in due if moment in old])
        assert all(asked.setdefault(helper, since) == since for helper, since in leaving.items())
        for helper in list(leaving)[: ends.count(step)]:
            returns.remove(helper, float(now))
            del asked[helper]
            assert helper not in returns.leaving(due, float(now))
