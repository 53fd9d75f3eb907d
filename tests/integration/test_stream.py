"""The monitor's rule on the stream that the benchmarks use: weeks that drift, and weeks that do not."""

from __future__ import annotations

import pytest

from tests.bench.stream import alarms


@pytest.mark.nightly("twelve weeks of data; `test_drift.py` compares two of them")
def test_a_stream_raises_no_alarm_before_it_drifts_and_does_from_then_on():
    assert alarms(3, drifts_at=8)["alarms in weeks"] == "8, 9, 10, 11, 12"
