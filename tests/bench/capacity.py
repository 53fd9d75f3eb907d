"""Compare ``dmls plan --platform`` with a simulation of the future that it plans for.

The simulator of ``elastic_queue.py`` (one trainer for each search, in order of arrival) runs searches at a
low load; their ends are the history. The plan for more jobs or more rows is compared with a simulation of
these, with arrivals of its own. Waits are means over the seeds.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.monitoring.capacity import CapacityPlan, PastRun, plan_capacity
from tests.bench.elastic_queue import Job, Pool, arrivals
from tests.bench.report import Row, run

TODAY = 0.35
"""Load of the history: share of the slots' time."""

FUTURES = ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0), (1.5, 1.5), (2.5, 1.0))
"""Factors of jobs and rows."""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def history_of(jobs: list[Job]) -> list[PastRun]:
    """Return the finished searches as a platform's store has them."""
    runs = []
    for job in jobs:
        started = EPOCH + timedelta(seconds=job.end - job.service)
        runs.append(PastRun(f"team/{job.number}", started, job.service, "cpu"))
    return runs


def simulate(seed: int, count: int, slots: int, load: float, rows: float) -> Pool:
    """Run searches whose trials take ``rows`` times as long."""
    jobs = arrivals(seed, count, slots, load, 20.0)
    for job in jobs:
        job.trial_seconds *= rows
    pool = Pool(jobs, slots)
    pool.simulate()
    return pool


def waits(jobs: list[Job]) -> np.ndarray:
    """Return the seconds that each search waited for its slot."""
    return np.array([job.end - job.service - job.arrival for job in jobs])


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Return a row for each future."""
    return [compare(arguments, jobs, rows) for jobs, rows in FUTURES]


def compare(arguments: argparse.Namespace, jobs: float, rows: float) -> Row:
    """Return what the plan says next to what the simulator has."""
    plans: list[CapacityPlan] = []
    pools: list[Pool] = []
    for seed in range(arguments.seeds):
        today = simulate(seed, arguments.jobs, arguments.slots, TODAY, 1.0)
        end = EPOCH + timedelta(seconds=max(job.end for job in today.jobs))
        slots = {"cpu": arguments.slots}
        plans.append(plan_capacity(history_of(today.jobs), [], slots, end, jobs=jobs, rows=rows))  # type: ignore[arg-type]
        count = int(arguments.jobs * jobs)
        pools.append(simulate(1000 + seed, count, arguments.slots, TODAY * jobs, rows))
    hours = [24 * sum(job.service for job in pool.jobs) / max(job.end for job in pool.jobs) for pool in pools]
    found = np.concatenate([waits(pool.jobs) for pool in pools])
    planned_hours = float(np.mean([plan.pools[0].slot_hours for plan in plans]))
    mean = float(np.mean([plan.pools[0].mean_wait for plan in plans]))
    high = float(np.mean([plan.pools[0].p95_wait for plan in plans]))
    true_high = float(np.mean([np.quantile(waits(pool.jobs), 0.95) for pool in pools]))
    return {
        "jobs x": jobs,
        "rows x": rows,
        "load": f"{np.mean(hours) / 24 / arguments.slots:.0%}",
        "hours a day": planned_hours,
        "simulated": float(np.mean(hours)),
        "error": f"{planned_hours / np.mean(hours) - 1:+.0%}",
        "mean wait s": mean,
        "simulated ": float(found.mean()),
        "error ": f"{mean / found.mean() - 1:+.0%}",
        "p95 wait s": high,
        "simulated  ": true_high,
        "error  ": f"{high / true_high - 1:+.0%}" if true_high else "",
    }


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--slots", 8, "slots of the pool"),
        ("--jobs", 2000, "searches of each history"),
        ("--seeds", 10, "histories"),
    )
