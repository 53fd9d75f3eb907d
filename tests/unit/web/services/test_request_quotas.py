"""Quotas of teams for prediction requests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dmls_core.web.services import request_quotas
from dmls_core.web.services.request_quotas import seconds_over_quota


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, of a process that has answered nothing: two requests a minute for ``lab``, one for others."""
    quotas = SimpleNamespace(requests_per_minute={"lab": 2, "*": 1})
    now = [1000.0]
    monkeypatch.setattr(request_quotas, "airflow_settings", lambda: quotas)
    monkeypatch.setattr(request_quotas, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(request_quotas, "_answered", {})
    return now


def test_no_minute_has_more_requests_than_the_quota(clock: list[float]) -> None:
    answered = []
    for second in range(300):
        clock[0] = second
        if not seconds_over_quota("lab"):
            answered.append(second)
    assert answered == [0, 1, 60, 61, 120, 121, 180, 181, 240, 241]


def test_a_refused_request_waits_for_the_oldest_of_a_minute_and_counts_for_nothing(
    clock: list[float],
) -> None:
    assert seconds_over_quota("lab") == 0
    clock[0] += 20
    assert seconds_over_quota("lab") == 0
    clock[0] += 15
    assert [seconds_over_quota("lab") for _ in range(9)] == [25] * 9
    clock[0] += 25
    assert seconds_over_quota("lab") == 0


def test_teams_do_not_share_a_quota(clock: list[float]) -> None:
    assert [seconds_over_quota(team) > 0 for team in ("shop", "bank", "shop", "bank")] == [
        False,
        False,
        True,
        True,
    ]


def test_teams_without_requests_are_forgotten(clock: list[float]) -> None:
    for at in range(100):
        clock[0] += 1
        assert not seconds_over_quota(f"team{at}")
    assert len(request_quotas._answered) == 60
    assert seconds_over_quota("team99") == 60


def test_without_a_quota_nothing_is_counted(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = SimpleNamespace(requests_per_minute={"lab": 1})
    monkeypatch.setattr(request_quotas, "airflow_settings", lambda: quotas)
    assert not any(seconds_over_quota("shop") for _ in range(100))
    assert request_quotas._answered == {}
