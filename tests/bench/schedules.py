"""Many scheduled jobs on a live scheduler: none runs twice, none is left out, and how starts are spread.

Run it with ``python tests/bench/schedules.py``: it starts a platform of its own and takes it down in the end.

What is real: the registry in S3, DMLS's DAGs and timetables, Airflow's DAG processor, database and scheduler,
which creates the runs, starts them and sees them end. What is not: the tasks. Airflow's default pool has no
slots, so that no task leaves the scheduler, and the tasks of each run are marked as done over the REST API as
soon as the run has begun, whereupon the scheduler ends it: to train a thousand models would measure the
trainer.

``late`` is from when a run is due (its interval's end and its job's delay within ``[schedule] jitter``) to
when the scheduler has queued it. The durations of the scheduler's loop are its own, from its log. An interval
counts if every job was free when it ended.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.services.demo_platform import NO_ENGINE, dmls
from tests.services.platform_client import PlatformClient
from tests.services.platform_home import PlatformHome

SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
target = "y"
time = "t"
[n_estimators]
value = 10
[schedule]
cron = "*/{minutes} * * * *"
jitter = {jitter}
[deploy]
mode = "never"
"""

LOOP = re.compile(r"Ran scheduling loop in ([0-9.]+) ms")
CONFIG = "[logging]\nnamespace_levels = airflow.jobs.scheduler_job_runner.SchedulerJobRunner=DEBUG\n"
"""Has Airflow log how long each loop of the scheduler took."""

THREADS = 4
PAGE = 100
BATCH = 20
PATIENCE = 300
"""Seconds within which the last runs of the last interval must come."""


class Loops:
    """Durations of the scheduler's loops, in milliseconds, from its log as that grows and is rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.open("rb")
        self._log.seek(0, os.SEEK_END)
        self._rest = b""

    def read(self) -> list[float]:
        """Return those since the last call."""
        text = self._rest + self._log.read()
        if os.fstat(self._log.fileno()).st_ino != self._path.stat().st_ino:
            text += self._log.read()
            self._log.close()
            self._log = self._path.open("rb")
            text += self._log.read()
        text, _, self._rest = text.rpartition(b"\n")
        return [float(found[1]) for found in LOOP.finditer(text.decode(errors="replace"))]


class Live:
    """A platform whose runs are ended as soon as they run."""

    def __init__(self, home: Path) -> None:
        self.home = PlatformHome(home)
        self.platform = PlatformClient(home / "platform.json")
        self.loops = Loops(home / "logs" / "airflow-scheduler.log")
        self.threads = ThreadPoolExecutor(THREADS)

    def close_pool(self) -> None:
        """Take the default pool's slots, so that no task leaves the scheduler."""
        path = "/pools/default_pool?update_mask=slots"
        self.platform.airflow("PATCH", path, {"slots": 0, "include_deferred": False})

    def register(self, jobs: int, minutes: int, jitter: int) -> None:
        """Accept so many jobs, each with a schedule, at once."""
        from dmls_core.models import load_spec
        from dmls_core.store import Registry, open_store

        os.environ |= self.platform.state["environment"]  # credentials of the platform's S3
        registry = Registry(open_store(self.platform.settings["root"]))
        spec = load_spec(SPEC.format(minutes=minutes, jitter=jitter).encode())
        now = datetime.now(UTC)
        list(
            self.threads.map(
                lambda number: registry.accept(spec, f"team{number % 7}", f"job{number}", [], now),
                range(jobs),
            )
        )

    def runs(self, query: str) -> Iterator[dict[str, Any]]:
        """Yield the runs of all jobs that a query finds."""
        offset, total = 0, 1
        while offset < total:
            path = f"/dags/~/dagRuns?limit={PAGE}&offset={offset}&order_by=id&{query}"
            answer = self.platform.airflow("GET", path)
            total = answer["total_entries"]
            yield from (r for r in answer["dag_runs"] if r["dag_id"].startswith("dmls.team"))
            offset += PAGE

    def count(self, query: str) -> int:
        """Return the number of runs that a query finds."""
        found: int = self.platform.airflow("GET", f"/dags/~/dagRuns?limit=1&{query}")["total_entries"]
        return found

    def end_running(self) -> int:
        """Mark the tasks of what runs as done; return the number of runs."""
        running = list(self.runs("state=running"))
        entities = [
            {
                "dag_id": found["dag_id"],
                "dag_run_id": found["dag_run_id"],
                "task_id": "validate",
                "include_downstream": True,
                "new_state": "success",
            }
            for found in running
        ]
        for start in range(0, len(entities), BATCH):
            batch = entities[start : start + BATCH]
            action = {"action": "update", "entities": batch, "update_mask": ["new_state"]}
            try:
                self.platform.airflow("PATCH", "/dags/~/dagRuns/~/taskInstances", {"actions": [action]})
            except AssertionError:
                continue  # the scheduler holds one of these rows: at the next look
        return len(running)

    def end_until(self, until: Any) -> list[float]:
        """End what runs until something holds; return what the scheduler's loops took, in milliseconds."""
        self.loops.read()
        loops: list[float] = []
        while not until():
            if not self.end_running():
                time.sleep(2)
            loops += self.loops.read()
        return loops

    def watch(self, name: str, until: Any) -> Row:
        """End what runs until something holds, and tell of the scheduler's loops meanwhile."""
        cpu, begun = self._cpu(), time.monotonic()
        loops = sorted(self.end_until(until))
        seconds = time.monotonic() - begun
        assert loops, "the scheduler's log reports of no loop"
        return {
            "while": name,
            "seconds": seconds,
            "loops": len(loops),
            "loop median ms": statistics.median(loops),
            "loop p95 ms": loops[int(len(loops) * 0.95)],
            "loop max ms": loops[-1],
            "scheduler CPU %": 100 * (self._cpu() - cpu) / seconds,
        }

    def _cpu(self) -> float:
        import psutil

        times = psutil.Process(self.home.main_pid("airflow-scheduler")).cpu_times()
        return times.user + times.system


def after(seconds: float) -> Any:
    """Return what holds once so many seconds have passed."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def tell(runs: list[dict[str, Any]], jobs: int) -> Row:
    """Say of an interval's runs whether each job has one, how they are spread and how late they came."""
    counts = Counter(found["dag_id"] for found in runs)
    due = [_moment(r["run_after"]) - _moment(r["data_interval_end"]) for r in runs]
    late = sorted((_moment(r["queued_at"]) - _moment(r["run_after"])).total_seconds() for r in runs)
    starts = ((_moment(r["start_date"]) - _moment(r["data_interval_end"])).total_seconds() for r in runs)
    halves = Counter(int(start // 30) for start in starts)
    return {
        "jobs with a run": len(counts),
        "without": jobs - len(counts),
        "with two": sum(count > 1 for count in counts.values()),
        "due s": f"{min(due).total_seconds():.0f}-{max(due).total_seconds():.0f}",
        "late median s": statistics.median(late),
        "late max s": late[-1],
        "starts per 30 s": " ".join(str(halves[number]) for number in range(max(halves) + 1)),
    }


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Measure the loops without jobs, with jobs of which none is due, and over intervals."""
    jobs, minutes = arguments.jobs, arguments.minutes
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        home = Path(folder) / ".dmls"
        (home / "airflow").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        (home / "airflow" / "airflow.cfg").write_text(CONFIG)
        up = dmls(home, "up", timeout=420, DOCKER_HOST=NO_ENGINE)
        assert up.returncode == 0, up.stderr
        try:
            return _measure(Live(home), jobs, minutes, arguments.intervals)
        finally:
            dmls(home, "down", timeout=120)


def _measure(live: Live, jobs: int, minutes: int, intervals: int) -> list[Row]:
    live.close_pool()
    rows = [live.watch("no jobs", after(30)) | dict.fromkeys(tell_keys(), "")]
    live.register(jobs, minutes, jitter=(minutes - 1) * 60)

    def admitted() -> bool:
        ended = live.count("state=success&run_id_prefix_pattern=submission")
        print(f"  {ended} admission runs have ended", flush=True)
        return ended >= jobs

    row = live.watch("admission", admitted)
    found = list(live.runs("run_id_prefix_pattern=submission"))
    rows.append(row | tell(found, jobs) | {"due s": "0"})
    step = timedelta(minutes=minutes)
    now = datetime.now(UTC)
    boundary = now.replace(minute=0, second=0, microsecond=0)
    while boundary < now:
        boundary += step
    live.end_until(lambda: datetime.now(UTC) >= boundary)
    first = boundary
    while boundary < first + intervals * step:
        end = boundary + step
        rows.append(live.watch(f"interval until {boundary:%H:%M}", lambda end=end: datetime.now(UTC) >= end))
        boundary = end

    def scheduled() -> list[dict[str, Any]]:
        return list(live.runs("run_type=scheduled&run_id_prefix_pattern=scheduled"))

    late = after(PATIENCE)
    wanted = boundary - step
    live.end_until(
        lambda: late() or sum(_moment(r["data_interval_end"]) == wanted for r in scheduled()) >= jobs,
    )
    found = scheduled()
    for number, row in enumerate(rows[2:]):
        wanted = first + number * step
        rows[2 + number] = row | tell([r for r in found if _moment(r["data_interval_end"]) == wanted], jobs)
    names = Counter((r["dag_id"], r["data_interval_end"]) for r in found)
    assert max(names.values()) == 1, "a job ran twice for an interval"
    assert all(not row["without"] and not row["with two"] for row in rows[1:]), rows
    return rows


def tell_keys() -> list[str]:
    """Return the columns of a row that are about runs."""
    moment = "2026-01-01T00:00:00Z"
    keys = ("run_after", "data_interval_end", "queued_at", "start_date")
    return list(tell([{"dag_id": "", **dict.fromkeys(keys, moment)}], 1))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--jobs", 1000, "number of jobs"),
        ("--minutes", 3, "length of an interval; a divisor of 60"),
        ("--intervals", 2, "intervals that are watched"),
    )
