"""The capacity plan: replay of runs on slots, growth, and the history from a store."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.monitoring.capacity import PastRun, describe_plan, p95, plan_capacity, replay
from dmls_core.monitoring.capacity_history import read_history
from dmls_core.store import LocalStore, layout

END = datetime(2026, 11, 8, tzinfo=UTC)


def hourly(seconds, *, days=7, job="shop/a", device="cpu", **more):
    """Runs at each full hour of the last days."""
    begin = END - timedelta(days=days)
    return [PastRun(job, begin + timedelta(hours=hour), seconds, device, **more) for hour in range(24 * days)]


@pytest.mark.parametrize(
    ("slots", "waits", "longest"),
    [(1, [0, 9, 18], 2), (2, [0, 0, 8], 1), (3, [0, 0, 0], 0)],
)
def test_runs_wait_in_their_order(slots, waits, longest):
    arrivals = [(0.0, 10.0, 1), (1.0, 10.0, 1), (2.0, 10.0, 1)]
    assert replay(arrivals, slots) == (waits, longest)


def test_each_trainer_of_a_run_needs_a_slot():
    assert replay([(0.0, 10.0, 2), (1.0, 5.0, 1)], 2)[0] == [0, 9]


def test_the_95th_percentile_is_a_wait_that_occurred():
    assert p95([]) == 0
    assert p95(range(100)) == 94
    assert p95([5]) == 5


def test_hours_and_use_are_those_of_the_history():
    plan = plan_capacity(hourly(1800), [], {"cpu": 2, "gpu": 0}, END)
    (pool,) = plan.pools
    assert plan.days == 7
    assert (pool.runs_per_day, pool.slot_hours, pool.used, pool.full_at) == (24, 12, 0.25, 4)
    assert (pool.mean_wait, pool.longest_queue, pool.slots_needed) == (0, 0, 1)
    assert dict(describe_plan(plan))["CPU limit"] == (
        "the queue overflows at 4.0 times this work; slots for waits of at most 10 min: 1"
    )


def test_more_jobs_multiply_the_runs_and_more_rows_their_time():
    runs = [run for number in range(10) for run in hourly(370, job=f"shop/{number}")]
    today = plan_capacity(runs, [], {"cpu": 10}, END).pools[0]
    (jobs,) = plan_capacity(runs, [], {"cpu": 10}, END, jobs=10).pools
    ten_rows = plan_capacity(runs, [], {"cpu": 10}, END, rows=10)
    (rows,) = ten_rows.pools
    assert jobs.runs_per_day == pytest.approx(10 * today.runs_per_day)
    assert jobs.slot_hours == pytest.approx(10 * today.slot_hours)
    # 10 of the 370 seconds do not depend on the rows.
    assert rows.slot_hours == pytest.approx(today.slot_hours * 3610 / 370)
    assert rows.used > 1
    assert "grows without end" in dict(describe_plan(ten_rows))["CPU limit"]
    assert rows.slots_needed > 10 > today.slots_needed


def test_part_of_the_jobs_can_be_planned():
    runs = [run for number in range(200) for run in hourly(60, days=2, job=f"shop/{number}")]
    half = plan_capacity(runs, [], {"cpu": 4}, END, jobs=0.5).pools[0]
    assert half.runs_per_day == pytest.approx(0.5 * 200 * 24, rel=0.15)


def test_devices_memory_store_triton_and_cost():
    runs = hourly(3600, peak_bytes=300, stored_bytes=10) + hourly(
        3600, job="shop/b", device="gpu", peak_bytes=500
    )
    plan = plan_capacity(runs, [1 << 20, 0], {"cpu": 2, "gpu": 0}, END, rows=3, hourly_price="0.50 EUR")
    cpu, gpu = plan.pools
    assert (cpu.device, gpu.device) == ("cpu", "gpu")
    assert (gpu.used, gpu.full_at, gpu.slots_needed) == (None, None, 3)
    assert plan.peak_bytes == 300 + 3 * 200
    assert plan.stored_bytes_per_day == 240
    assert plan.triton_bytes == (2 << 20) + 2 * (40 << 20)
    assert (plan.cost_per_day, plan.currency) == (
        pytest.approx(0.5 * (cpu.slot_hours + gpu.slot_hours)),
        "EUR",
    )


@pytest.mark.parametrize(
    ("prices", "expected"), [(("0.50 EUR", "2.50 EUR"), 12 + 60), (("", "2.50 EUR"), 60)]
)
def test_a_gpu_has_a_price_of_its_own(prices, expected):
    runs = hourly(3600) + hourly(3600, job="shop/b", device="gpu")
    slots = {"cpu": 2, "gpu": 2}
    plan = plan_capacity(runs, [], slots, END, hourly_price=prices[0], gpu_hourly_price=prices[1])
    assert (plan.cost_per_day, plan.currency) == (pytest.approx(expected), "EUR")


def test_a_short_history_is_that_of_a_day():
    runs = [PastRun("shop/a", END - timedelta(minutes=5), 60, "cpu")]
    plan = plan_capacity(runs, [], {"cpu": 1}, END)
    assert (plan.days, plan.pools[0].runs_per_day) == (1, 1)


def test_a_platform_without_runs_needs_nothing():
    plan = plan_capacity([], [], {"cpu": 4, "gpu": 0}, END)
    assert [(pool.runs_per_day, pool.used, pool.slots_needed) for pool in plan.pools] == [(0, 0, 0)]
    assert plan.cost_per_day is None
    assert "nothing to plan with" in dict(describe_plan(plan))["history"]


@pytest.fixture
def store(tmp_path):
    """Return a store with two runs of a served job, one damaged result, and a run without a result."""
    store = LocalStore.from_url(str(tmp_path))
    sha = "0" * 64
    for number, job in enumerate(("a", "a", "broken", "running")):
        folder = layout.run_folder("shop", job, f"{number:016d}")
        # A user changed the spec for the run.
        store.put(folder + layout.SPEC, json.dumps({"search": {"workers": 2 - number}}).encode())
        store.put(folder + layout.MODEL + "checkpoint.tl", bytes(1000 + number))
        result = {
            "seconds": {"total": 60.0},
            "finished": datetime.now(UTC).isoformat(),
            "engine": "cpu",
            "spec_sha256": sha,
            "peak_memory_bytes": 5,
        }
        if job != "running":
            store.put(folder + layout.RESULT, b"[]" if job == "broken" else json.dumps(result).encode())
    store.put(layout.served("shop", "a"), b"{}")
    return store


def test_the_history_comes_from_the_results_in_the_store(store, caplog):
    history = read_history(store)
    runs = sorted((run.job, run.seconds, run.trainers, run.peak_bytes) for run in history.runs)
    assert runs == [("shop/a", 60.0, 1, 5), ("shop/a", 60.0, 2, 5)]
    assert history.served_bytes == [1001]
    assert "shop/broken" in caplog.text
    assert all(run.stored_bytes > 1000 for run in history.runs)


def test_runs_of_longer_ago_do_not_count(store):
    assert read_history(store, days=0).runs == []
