"""Capacity plan: replay the last weeks' runs on the platform's slots, more of them or with more rows."""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from dmls_core.html.formats import duration, file_size

if TYPE_CHECKING:
    from dmls_core.monitoring.request_counts import Requests

Device = Literal["cpu", "gpu"]

_DAY = timedelta(days=1)

_SPREAD = timedelta(hours=1)
"""Copies of a run start at most this much before or after it, on any day: jobs keep their hours."""

_LONG_WAIT = 600.0
"""Seconds that 95 % of the runs must not exceed; ``slots_needed`` is the number of slots for that."""

_FIXED_SECONDS = 10.0
"""What a run takes at most even on next to no rows; less if a run was shorter."""

_MAX_NEEDED = 10_000

_ENDPOINT_BYTES = 40 << 20
"""Memory of the process of a table endpoint (docs/explanation/serving.md)."""

SERVER_CPUS, SERVER_USE = 4, 0.5
"""CPUs of a Triton server in the plan, and the share of them that requests may use in the busiest hour."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A finished run.

    Attributes:
        job: ``<team>/<name>``.
        started: when its trainer started, in UTC.
        seconds: duration of the trainer.
        trainers: number of trainers, each with a slot of its own.
        peak_bytes: peak memory of the trainer; 0 if unknown.
        stored_bytes: size of its files in the store.
    """

    job: str
    started: datetime
    seconds: float
    device: Device
    trainers: int = 1
    peak_bytes: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What the runs on one device need.

    Attributes:
        slots: slots of the pool, one for each trainer at work.
        slot_hours: hours of slots a day.
        used: share of the slots' time that is used; above 1 the queue grows without end. ``None``: no slots.
        full_at: factor of this plan's work that uses all slots' time; ``None`` without work or slots.
        mean_wait: seconds from a run's start to its slot; ``p95_wait`` is not exceeded by 95 % of the runs.
        longest_queue: largest number of waiting runs.
        slots_needed: fewest slots with which ``p95_wait`` is at most 10 minutes; ``None`` beyond 10,000.
    """

    device: Device
    slots: int
    runs_per_day: float
    slot_hours: float
    used: float | None
    full_at: float | None
    mean_wait: float
    p95_wait: float
    longest_queue: int
    slots_needed: int | None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What the platform needs, at ``jobs`` and ``rows`` times the runs and rows of the last ``days``.

    Attributes:
        jobs: factor of the number of jobs, and of their runs.
        rows: factor of the rows of their data.
        runs: number of the runs in the history.
        pools: CPU first; a device without slots and runs is missing.
        peak_bytes: largest peak memory of a trainer; 0 if no run recorded it.
        stored_bytes_per_day: growth of the store, unless old runs are deleted.
        triton_bytes: memory of each Triton server that serves all models.
        requests_per_day: predictions by Triton; ``None`` if none was recorded.
        busiest_hour: requests in the busiest hour.
        triton_cpus: CPUs that were busy with them, on average.
        triton_servers: servers of ``SERVER_CPUS`` CPUs that are half used in that hour; 0 if unknown.
        cost_per_day: price of the trainers' time on devices that have a price, or ``None`` without any.
    """

    days: float
    runs: int
    jobs: float
    rows: float
    pools: tuple[PoolPlan, ...]
    peak_bytes: int
    stored_bytes_per_day: float
    triton_bytes: int
    requests_per_day: float | None
    busiest_hour: int
    triton_cpus: float
    triton_servers: int
    cost_per_day: float | None
    currency: str = ""


def plan_capacity(
    history: Sequence[PastRun],
    served_bytes: Sequence[int],
    slots: dict[Device, int],
    end: datetime,
    *,
    jobs: float = 1.0,
    rows: float = 1.0,
    requests: Mapping[datetime, Requests] | None = None,
    hourly_price: str = "",
    gpu_hourly_price: str = "",
) -> CapacityPlan:
    """Return what the platform needs if there are ``jobs`` times as many jobs, with ``rows`` times the rows.

    The time of a run beyond its fixed part, and its memory beyond the smallest run's, grow in proportion to
    the rows. Files and models keep their sizes.

    Args:
        history: runs from a moment until ``end``.
        served_bytes: sizes of the served models.
        slots: slots by device.
        end: end of the history, in UTC.
        jobs: factor of the jobs.
        rows: factor of the rows.
        requests: requests to Triton, by hour.
        hourly_price: price of a trainer per hour, such as ``0.40 EUR``, or empty.
        gpu_hourly_price: price of a trainer with a GPU; empty: the same.
    """
    begin = min((run.started for run in history), default=end - _DAY)
    # Less than a day says nothing of the runs a day.
    period = max(end - begin, _DAY)
    days = period / _DAY
    fixed = min((run.seconds for run in history), default=_FIXED_SECONDS)
    fixed = min(fixed, _FIXED_SECONDS)
    least = min((run.peak_bytes for run in history if run.peak_bytes), default=0)
    pools = []
    for device, count in slots.items():
        device_runs = [run for run in history if run.device == device]
        if count or device_runs:
            arrivals = list(_arrivals(device_runs, begin, period, jobs, rows, fixed))
            pools.append(_plan_pool(device, count, arrivals, days))
    prices: dict[Device, str] = {"cpu": hourly_price, "gpu": gpu_hourly_price or hourly_price}
    costs = [pool.slot_hours * float(prices[pool.device].split()[0]) for pool in pools if prices[pool.device]]
    priced = hourly_price or gpu_hourly_price
    busiest = max((requests or {}).values(), key=lambda hour: hour.busy_seconds, default=None)
    cpus = jobs * busiest.busy_seconds / 3600 if busiest else 0.0
    largest = max((run.peak_bytes for run in history), default=0)
    return CapacityPlan(
        days=days,
        runs=len(history),
        jobs=jobs,
        rows=rows,
        pools=tuple(pools),
        peak_bytes=int(least + (largest - least) * rows),
        stored_bytes_per_day=jobs * sum(run.stored_bytes for run in history) / days,
        # Triton holds a model twice while its version changes.
        triton_bytes=int(jobs * sum(2 * size + _ENDPOINT_BYTES for size in served_bytes)),
        requests_per_day=jobs * _per_day(requests, end) if requests else None,
        busiest_hour=int(jobs * max(hour.count for hour in requests.values())) if requests else 0,
        triton_cpus=cpus,
        triton_servers=math.ceil(cpus / (SERVER_CPUS * SERVER_USE)) if requests else 0,
        cost_per_day=sum(costs) if priced else None,
        currency=priced.partition(" ")[2],
    )


def _per_day(requests: Mapping[datetime, Requests], end: datetime) -> float:
    period = max(end - min(requests), _DAY)
    return sum(hour.count for hour in requests.values()) * (_DAY / period)


Arrival = tuple[float, float, int]
"""Seconds from the beginning of the period, duration in seconds, number of trainers."""


def _arrivals(
    history: Sequence[PastRun], begin: datetime, period: timedelta, jobs: float, rows: float, fixed: float
) -> Iterable[Arrival]:
    """Yield the runs and their copies; the first copy of a job has its times, others start on other days."""
    full_copies = int(jobs)
    for job, runs in _by_job(history).items():
        # One generator a job: the copies of a job are the same in plans for more jobs.
        draw = random.Random(job)  # noqa: S311 - no secret
        copies = full_copies + (draw.random() < jobs - full_copies)
        for copy in range(copies):
            shift = _shift(draw, period) if copy else timedelta()
            for run in runs:
                start = (run.started - begin + shift) % period
                yield start.total_seconds(), fixed + (run.seconds - fixed) * rows, run.trainers


def _by_job(history: Iterable[PastRun]) -> dict[str, list[PastRun]]:
    runs: dict[str, list[PastRun]] = {}
    for run in history:
        runs.setdefault(run.job, []).append(run)
    return runs


def _shift(draw: random.Random, period: timedelta) -> timedelta:
    days = period // _DAY
    if days < 2:
        return draw.random() * period
    return draw.randrange(days) * _DAY + draw.uniform(-1, 1) * _SPREAD


def _plan_pool(device: Device, slots: int, arrivals: list[Arrival], days: float) -> PoolPlan:
    arrivals.sort()
    hours = sum(seconds * trainers for _, seconds, trainers in arrivals) / 3600 / days
    used = hours / 24 / slots if slots else None
    waits, longest = replay(arrivals, slots) if slots else ([], len(arrivals))
    return PoolPlan(
        device=device,
        slots=slots,
        runs_per_day=len(arrivals) / days,
        slot_hours=hours,
        used=used,
        full_at=1 / used if used else None,
        mean_wait=statistics.fmean(waits) if waits else 0.0,
        p95_wait=p95(waits),
        longest_queue=longest,
        slots_needed=_slots_needed(arrivals, hours),
    )


def replay(arrivals: Sequence[Arrival], slots: int) -> tuple[list[float], int]:
    """Return each run's seconds until its first trainer has a slot, and the length of the longest queue.

    Runs get slots in their order; further trainers of a run wait behind its first one.

    Args:
        arrivals: sorted by time.
        slots: at least 1.
    """
    free = [0.0] * slots
    waits, starts = [], list[float]()
    longest = 0
    for arrival, seconds, trainers in arrivals:
        for number in range(min(trainers, slots)):
            start = max(arrival, free[0])
            heapq.heapreplace(free, start + seconds)
            if not number:
                waits.append(start - arrival)
                while starts and starts[0] <= arrival:
                    heapq.heappop(starts)
                if start > arrival:
                    heapq.heappush(starts, start)
                longest = max(longest, len(starts))
    return waits, longest


def p95(waits: Sequence[float]) -> float:
    """Return the wait that 95 % of the runs do not exceed."""
    ordered = sorted(waits)
    return ordered[-(-len(ordered) * 95 // 100) - 1] if ordered else 0.0


def _slots_needed(arrivals: Sequence[Arrival], hours: float) -> int | None:
    if not arrivals:
        return 0
    low, high = max(int(hours / 24), 1), max(int(hours / 24), 1)
    while p95(replay(arrivals, high)[0]) > _LONG_WAIT:
        low, high = high + 1, 2 * high
        if high > _MAX_NEEDED:
            return None
    while low < high:
        middle = (low + high) // 2
        if p95(replay(arrivals, middle)[0]) > _LONG_WAIT:
            low = middle + 1
        else:
            high = middle
    return high


def describe_plan(plan: CapacityPlan) -> list[tuple[str, str]]:
    """Return a plan as names and values, for people."""
    if not plan.runs:
        return [("history", "no run finished in the last weeks: there is nothing to plan with")]
    days = f"{plan.days:.0f} days" if plan.days >= 1.5 else "1 day"
    lines = [("history", f"{plan.runs:,} finished run{'s' if plan.runs > 1 else ''} in {days}")]
    if plan.jobs != 1 or plan.rows != 1:
        lines.append(("planned for", f"{plan.jobs:g} times the jobs, {plan.rows:g} times the rows"))
    for pool in plan.pools:
        lines += _describe_pool(pool)
    if plan.peak_bytes:
        lines.append(("memory", f"up to {file_size(plan.peak_bytes)} in a trainer"))
    lines += [
        ("store", f"{file_size(plan.stored_bytes_per_day)} more a day"),
        ("Triton", f"{file_size(plan.triton_bytes)} in each server that serves all models"),
    ]
    if plan.requests_per_day is not None:
        one = f"{plan.triton_servers} server{'s' if plan.triton_servers > 1 else ''} of {SERVER_CPUS} CPUs"
        text = f"{plan.requests_per_day:,.0f} a day, {plan.busiest_hour:,} in the busiest hour, which keep "
        cpus = f"{plan.triton_cpus:,.2g}" if plan.triton_cpus >= 0.01 else "less than 0.01"
        text += f"{cpus} CPUs of Triton busy: {one}, at most {SERVER_USE:.0%} used"
        lines.append(("requests", text))
    if plan.cost_per_day is not None:
        lines.append(("cost", f"{plan.cost_per_day:,.2f} {plan.currency} a day for trainers"))
    return lines


def _describe_pool(pool: PoolPlan) -> list[tuple[str, str]]:
    name = pool.device.upper()
    time = f"{pool.runs_per_day:,.1f} runs and {duration(3600 * pool.slot_hours)} of trainers a day"
    if pool.used is None:
        return [(name, f"{time}, but no slots")]
    lines = [(name, f"{time}, {pool.used:.0%} of {pool.slots} slots")]
    if pool.full_at is None:
        return lines
    waits = f"{duration(pool.mean_wait)} on average, at most {duration(pool.p95_wait)} for 95 % of the runs"
    waits += f"; up to {pool.longest_queue:,} runs in the queue"
    full = f"the queue overflows at {pool.full_at:,.{1 if pool.full_at < 10 else 0}f} times this work"
    limit = full if pool.full_at > 1 else "the queue grows without end"
    needed = f"{pool.slots_needed:,}" if pool.slots_needed is not None else f"over {_MAX_NEEDED:,}"
    limit += f"; slots for waits of at most {_LONG_WAIT / 60:.0f} min: {needed}"
    return [*lines, (f"{name} waits", waits if pool.longest_queue else "none"), (f"{name} limit", limit)]
