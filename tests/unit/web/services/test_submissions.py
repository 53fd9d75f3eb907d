from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.errors import SpecError
from dmls_core.web.services.submissions import (
    check_spec,
    mark_floats,
    next_runs,
    unmark_floats,
    write_spec,
)

PLAIN = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-99, 99), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=4).filter(lambda name: name != "float"), inner, max_size=3),
    ),
    max_leaves=8,
)


def through_javascript(value: object) -> object:
    """Return what a browser sends back: it writes 1.0 as 1."""
    if isinstance(value, dict):
        return {name: through_javascript(part) for name, part in value.items()}
    if isinstance(value, list):
        return [through_javascript(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@given(PLAIN)
def test_integral_floats_survive_javascript(value: object) -> None:
    back = unmark_floats(json.loads(json.dumps(through_javascript(mark_floats(value)))))

    assert back == value
    assert repr(back).replace("-0.0", "0.0") == repr(value).replace("-0.0", "0.0")


def test_next_runs_are_in_the_time_zone_of_the_schedule() -> None:
    found = next_runs({"cron": "30 6 * * 1", "timezone": "Asia/Tokyo"})

    times = [datetime.fromisoformat(text) for text in found]
    assert len(times) == 5
    assert times[0] > datetime.now(UTC)
    assert {(time.weekday(), time.hour, time.minute) for time in times} == {(0, 6, 30)}
    assert {time.utcoffset() for time in times} == {timedelta(hours=9)}
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(days=7)}


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        "daily",
        {"on": "data"},
        {"cron": 5},
        {"cron": "99 * * * *"},
        {"cron": "@daily", "timezone": "Mars/Olympus"},
    ],
    ids=["none", "text", "data", "number", "minute", "zone"],
)
def test_a_schedule_without_valid_cron_has_no_next_runs(schedule: object) -> None:
    assert next_runs(schedule) == []


def test_next_runs_of_a_spec_with_other_errors() -> None:
    checked = check_spec('model = "random-forest-classifier"\n[schedule]\ncron = "@daily"\n', [])

    assert not checked.valid
    assert len(checked.next_runs) == 5


def test_a_spec_of_nested_lists_is_refused() -> None:
    nested: object = reduce(lambda inner, _: [inner], range(900), 1)
    with pytest.raises(SpecError, match="nested too deeply"):
        write_spec({"n_estimators": nested}, [])
