"""Simulate a pool of trainers under generated arrivals, with the rules of elastic searches and with others.

A search is a start (its data is loaded), trials, and an end (refit and export) in its first trainer. Helpers
pay the start, too. Trainers do not slow each other. Arrivals are a Poisson process; durations of searches and
trials are log-normal.

- fifo: one trainer for each search, in order of arrival
- fixed: always that many trainers, if there are slots; they stay to the end
- one each: each team has one slot of its own
- elastic: ``workers = "auto"``, with the product's rules (``search.study.elastic``, ``helper_weight``)
- goodput: at each end of a trial, slots move so that the sum of the logarithms of the searches' speeds is
  largest, unless the move costs more than it saves. A goal like that of Pollux; it knows each search's rest
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.airflow.jobs.priority import helper_weight
from dmls_core.search.study.elastic import (
    JOIN_DELAY_SECONDS,
    LAST_TRIAL_SECONDS,
    Helper,
    SlotReturns,
    joining,
)
from dmls_core.spec.values import AUTO_WORKERS
from tests.bench.report import Row, run

LATENCY_SECONDS = 5.0
"""From a free slot to the trainer's start: Airflow's scheduler, a worker, the import of packages."""

LOAD_SECONDS, END_SECONDS = 10.0, 20.0
WATCH_SECONDS = 2.0

CLAIM_SECONDS = 0.13
"""What a trial of a shared search costs more: measured with trials that sleep, on a busy machine."""


@dataclass(eq=False)
class Job:
    """A search; ``left`` counts the trials that no trainer has claimed."""

    number: int
    arrival: float
    team: int
    trials: int
    trial_seconds: float
    left: int = 0
    ended: int = 0
    state: str = "waiting"
    end: float = 0.0
    tasks: list[Task] = field(default_factory=list)

    @property
    def service(self) -> float:
        """Seconds that one trainer takes."""
        return LATENCY_SECONDS + LOAD_SECONDS + self.trials * self.trial_seconds + END_SECONDS

    @property
    def progress(self) -> dict[str, object]:
        """What the product's ``progress.json`` says."""
        known = (self.trials - self.ended) * self.trial_seconds if self.ended else None
        return {"state": self.state, "remaining_seconds": known}


@dataclass(eq=False)
class Task:
    """A leader (number 0) or a helper; ``version`` invalidates events of the past."""

    job: Job
    number: int
    state: str = "queued"
    version: int = 0
    trial_since: float = -1.0
    delayed: bool = False
    helper: Helper | None = None
    asked: bool = False


class Pool:
    """One pool with the rules of Airflow's scheduler; subclasses have other rules."""

    workers = 1

    def __init__(self, jobs: list[Job], slots: int) -> None:
        self.now, self.slots, self.busy, self.repeated = 0.0, slots, 0.0, 0.0
        self.jobs, self.queue, self.running = jobs, [], set[Task]()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for job in jobs:
            job.left = job.trials
            self.at(job.arrival, lambda job=job: self.arrive(job))

    queue: list[Task]

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call a function at a time."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, call))

    def later(self, task: Task, seconds: float, call: Callable[[Task], None]) -> None:
        """Call a function of a task after some time, unless the task has changed until then."""
        version = task.version
        self.at(self.now + seconds, lambda: call(task) if task.version == version else None)

    def simulate(self) -> None:
        """Run until all searches have ended."""
        while self._events:
            when, _, call = heapq.heappop(self._events)
            self.busy += len(self.running) * (when - self.now)
            self.now = when
            call()

    def arrive(self, job: Job) -> None:
        """Add a search's tasks to the queue."""
        job.tasks = [Task(job, number) for number in range(min(self.workers, job.trials))]
        self.queue += job.tasks
        self.give_slots()

    def order(self, task: Task) -> tuple[float, float]:
        """Return the key by which waiting tasks are sorted."""
        return (
            (-1.0, task.job.arrival) if not task.number else (-helper_weight(task.number), task.job.arrival)
        )

    def fits(self, task: Task) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether there is a slot for a task."""
        return len(self.running) < self.slots

    def give_slots(self) -> None:
        """Start waiting tasks in the slots that are free."""
        self.queue.sort(key=lambda task: (bool(task.number), *self.order(task)))
        for task in list(self.queue):
            if task in self.queue and self.fits(task):
                self.queue.remove(task)
                self.running.add(task)
                task.state, task.version = "starting", task.version + 1
                self.begin(task)

    def begin(self, task: Task) -> None:
        """Start the trainer of a task with a slot."""
        if not task.number:
            task.job.state = "loading"
        self.later(task, LATENCY_SECONDS + LOAD_SECONDS, self.claim)

    def claim(self, task: Task) -> None:
        """Run the next trial, or end."""
        job = task.job
        if not task.number and job.state == "loading":
            job.state = "searching"
        task.state, task.trial_since = "searching", -1.0
        if job.left and job.state == "searching":
            job.left -= 1
            task.trial_since = self.now
            claim = CLAIM_SECONDS if self.workers > 1 else 0.0
            self.later(task, job.trial_seconds + claim, self.end_trial)
        elif task.number:
            self.release(task)
        elif job.ended == job.trials:
            job.state = "refitting"
            self.later(task, END_SECONDS, self.end_job)
        # Otherwise the leader waits for the trials of others.

    def end_trial(self, task: Task) -> None:
        """Count a trial; the task goes on."""
        job = task.job
        job.ended += 1
        task.trial_since = -1.0
        leader = job.tasks[0]
        if leader.state == "searching" and leader.trial_since < 0 and leader is not task:
            self.claim(leader)
        self.go_on(task)

    def go_on(self, task: Task) -> None:
        """Claim the next trial; elastic rules may end the trainer instead."""
        self.claim(task)

    def release(self, task: Task, *, back: bool = False) -> None:
        """Free the slot of a task; with ``back`` it waits for another one."""
        if task.trial_since >= 0:
            self.repeated += self.now - task.trial_since
            task.job.left += 1
            leader = task.job.tasks[0]
            if leader.state == "searching" and leader.trial_since < 0:
                self.claim(leader)
        task.version += 1
        task.trial_since, task.state = -1.0, "queued" if back else "ended"
        self.running.discard(task)
        if back:
            self.queue.append(task)
        self.give_slots()

    def end_job(self, leader: Task) -> None:
        """End a search and its helpers."""
        job = leader.job
        job.state, job.end = "finished", self.now
        self.queue = [task for task in self.queue if task.job is not job]
        for task in job.tasks:
            task.version += 1
            task.state = "ended"
            self.running.discard(task)
        self.give_slots()


class OneEach(Pool):
    """Each team has one slot."""

    def fits(self, task: Task) -> bool:
        return all(other.job.team != task.job.team for other in self.running)


class Elastic(Pool):
    """Helpers join by ``joining`` and leave by ``SlotReturns``."""

    workers = AUTO_WORKERS

    def __init__(self, jobs: list[Job], slots: int) -> None:
        super().__init__(jobs, slots)
        self.returns = SlotReturns()
        self.watching = False

    def arrive(self, job: Job) -> None:
        super().arrive(job)
        if not self.watching:
            self.watching = True
            self.watch()

    def begin(self, task: Task) -> None:
        if not task.number:
            super().begin(task)
        elif not task.delayed:
            task.delayed = True
            self.later(task, JOIN_DELAY_SECONDS, lambda task: self.release(task, back=True))
        elif (when := joining(task.job.progress)) == "never":
            self.release(task)
        elif when == "later":
            self.later(task, JOIN_DELAY_SECONDS, lambda task: self.release(task, back=True))
        else:
            task.helper = Helper(str(task.job.number), task.number, self.now)
            self.returns.add(task.helper)
            super().begin(task)

    def watch(self) -> None:
        """Ask helpers to leave, as the product's trigger does every two seconds."""
        waiting = [task.job.arrival for task in self.queue if not task.number]
        self.watching = bool(waiting)
        if not waiting:
            return
        leaving = self.returns.leaving(waiting, self.now)
        for task in [task for task in self.running if task.helper in leaving]:
            task.asked = True
            if self.now - leaving[task.helper] >= LAST_TRIAL_SECONDS:
                self.release(task, back=True)
        self.at(self.now + WATCH_SECONDS, self.watch)

    def go_on(self, task: Task) -> None:
        if task.asked:
            self.release(task, back=True)
        else:
            self.claim(task)

    def release(self, task: Task, *, back: bool = False) -> None:
        if task.helper:
            self.returns.remove(task.helper, self.now)
            task.helper, task.asked = None, False
        super().release(task, back=back)

    def end_job(self, leader: Task) -> None:
        for task in leader.job.tasks:
            if task.helper:
                self.returns.remove(task.helper, self.now)
        super().end_job(leader)


class Goodput(Pool):
    """Helpers come and go so that the logarithms of the searches' speeds have the largest sum."""

    workers = AUTO_WORKERS

    def targets(self) -> dict[Job, int]:
        """Return the wanted trainers of each search that has not ended."""
        active = [job for job in self.jobs if job.tasks and job.state != "finished"]
        # A search that started keeps its first slot; others start in order.
        active.sort(key=lambda job: (job.state == "waiting", job.arrival))
        wanted = dict.fromkeys(active[: self.slots], 1)
        for _ in range(self.slots - len(wanted)):
            gains = [(count, job.arrival, job) for job, count in wanted.items() if self.gains(job, count)]
            if not gains:
                break
            wanted[min(gains, key=lambda gain: gain[:2])[2]] += 1
        return wanted

    def gains(self, job: Job, count: int) -> bool:
        """Return whether another trainer is worth its start."""
        rest = job.left * job.trial_seconds
        saved = rest / count - rest / (count + 1)
        return job.state == "searching" and count < len(job.tasks) and saved > LATENCY_SECONDS + LOAD_SECONDS

    def fits(self, task: Task) -> bool:
        if not super().fits(task):
            return False
        mine = sum(other.job is task.job for other in self.running)
        return not task.number or mine < self.targets().get(task.job, 0)

    def go_on(self, task: Task) -> None:
        mine = sum(other.job is task.job for other in self.running)
        if task.number and mine > self.targets().get(task.job, 0):
            self.release(task, back=True)
        else:
            self.claim(task)
            self.give_slots()


def fixed(workers: int) -> type[Pool]:
    """Return the pool in which each search has that many trainers."""
    return type(f"Fixed{workers}", (Pool,), {"workers": workers})


POLICIES: dict[str, type[Pool]] = {
    "fifo": Pool,
    "fixed 2": fixed(2),
    "fixed 4": fixed(4),
    "one each": OneEach,
    "elastic": Elastic,
    "goodput": Goodput,
}


def arrivals(seed: int, count: int, slots: int, load: float, trial_seconds: float) -> list[Job]:
    """Return searches of 3 minutes to 6 hours, 20 minutes in the median."""
    random = np.random.default_rng(seed)
    work = np.clip(random.lognormal(np.log(1200), 1.2, count), 180, 6 * 3600)
    trial = np.clip(random.lognormal(np.log(trial_seconds), 1.0, count), 1, work / 5)
    trials = np.ceil(work / trial).astype(int)
    mean = float(np.mean(trials * trial)) + LATENCY_SECONDS + LOAD_SECONDS + END_SECONDS
    times = np.cumsum(random.exponential(mean / (slots * load), count))
    teams = random.integers(slots, size=count)
    columns = zip(times, teams, trials, trial, strict=True)
    return [Job(number, float(a), int(m), int(n), float(s)) for number, (a, m, n, s) in enumerate(columns)]


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Simulate all policies at three loads."""
    return {f"load {load:.0%}": compare(arguments, load) for load in (0.5, 0.7, 0.9)}


def compare(arguments: argparse.Namespace, load: float) -> list[Row]:
    """Return a row for each policy over the same arrivals."""
    pools: dict[str, list[Pool]] = {name: [] for name in POLICIES}
    for name, policy in POLICIES.items():
        for seed in range(arguments.seeds):
            options = arguments.jobs, arguments.slots, load, arguments.trial
            pools[name].append(policy(arrivals(seed, *options), arguments.slots))
            pools[name][-1].simulate()
    fifo = times(pools["fifo"])
    rows: list[Row] = []
    for name, found in pools.items():
        own = times(found)
        spans = [max(job.end for job in pool.jobs) for pool in found]
        used = [pool.busy / span / pool.slots for pool, span in zip(found, spans, strict=True)]
        ratios = own / fifo
        rows.append(
            {
                "policy": name,
                "mean min": own.mean() / 60,
                "against fifo": f"{own.mean() / fifo.mean() - 1:+.0%}",
                "p95 min": float(np.quantile(own, 0.95)) / 60,
                "makespan h": float(np.mean(spans)) / 3600,
                "slots in use": f"{np.mean(used):.0%}",
                "repeated": f"{np.mean([p.repeated / p.busy for p in found]):.1%}",
                "later than 1.1 x fifo": f"{np.mean(ratios > 1.1):.1%}",
                "worst": float(ratios.max()),
                "worst s": float((own - fifo).max()),
            }
        )
    return rows


def times(pools: list[Pool]) -> np.ndarray:
    """Return the seconds from arrival to end of all searches."""
    return np.array([job.end - job.arrival for pool in pools for job in pool.jobs])


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--slots", 8, "slots of the pool"),
        ("--jobs", 400, "searches of each simulation"),
        ("--seeds", 5, "simulations of each policy"),
        ("--trial", 20.0, "median seconds of a trial"),
    )
