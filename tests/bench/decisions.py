"""Two task decisions a second from Airflow's scheduler on many DAGs: does it keep up, and at what cost?

A real scheduler on PostgreSQL, with finished runs in its history, starts the runs of ``--jobs`` DAGs of
eight tasks, spread evenly over their interval. An executor of this benchmark ends each task as soon as the
scheduler sends it, so that a decision is all that a task costs: it becomes due, waits for a slot, is queued.

``late`` is from when a run is due to its first task's start, ``run`` from there to the end of the last of its
eight tasks, one after another. A scheduler that falls behind shows in both::

    python tests/bench/decisions.py --minutes 60
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from airflow.executors.base_executor import BaseExecutor
from tests.bench.history import DAGS, RUNS, TASK_ROWS, TASKS, Bench, postgres

from tests.bench.report import Row, run

SPREAD = """
import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

first = pendulum.from_timestamp({first})
step = pendulum.duration(seconds={interval})
for number in range({jobs}):
    at = first.add(microseconds=int(1e6 * {interval} * number / {jobs}))
    options = {{"schedule": step, "start_date": at, "catchup": False, "max_active_runs": 1}}
    with DAG(f"dmls.live.job{{number}}", is_paused_upon_creation=False, **options) as dag:
        last = None
        for step_number in range({tasks}):
            task = BashOperator(task_id=f"step{{step_number}}", bash_command="true")
            if last is not None:
                last >> task
            last = task
    globals()[dag.dag_id] = dag
"""

LEAD, FOR_EACH_DAG = 60.0, 0.03
"""Seconds until the first run is due, in all and for each DAG that must be serialized until then."""

ENDED = "UPDATE task_instance SET state = 'success', start_date = now(), end_date = now() WHERE id = %s"

LIVE = """
SELECT extract(epoch FROM r.run_after), extract(epoch FROM min(t.start_date)),
       extract(epoch FROM max(t.end_date)), count(t.end_date)
FROM dag_run r JOIN task_instance t USING (dag_id, run_id)
WHERE r.dag_id LIKE 'dmls.live.%%' GROUP BY r.id, r.run_after
"""


class AtOnce(BaseExecutor):
    """End each task as soon as the scheduler sends it."""

    def start(self) -> None:
        """Connect to the database."""
        from airflow.configuration import conf

        address = conf.get("database", "sql_alchemy_conn").replace("+psycopg2", "")
        self.database = psycopg.connect(address, autocommit=True)

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        for workload in workload_items:
            key = workload.ti.key
            del self.queued_tasks[key]
            self.database.execute(ENDED, (workload.ti.id,))
            self.success(key)

    def end(self) -> None:
        """Close the connection."""
        self.database.close()


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Let the scheduler run, and return a row for each part of the time."""
    with tempfile.TemporaryDirectory(prefix="dmls-decisions-") as name:
        folder = Path(name)
        (folder / "postgres").mkdir()
        with postgres(folder / "postgres") as (context, server):
            bench = Bench(context, server, folder)
            bench.environment["AIRFLOW__CORE__EXECUTOR"] = "tests.bench.decisions.AtOnce"
            bench.environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
            bench.environment["AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"] = "1"
            bench.run("airflow", "db", "migrate")
            return _measure(bench, arguments)


def _measure(bench: Bench, arguments: argparse.Namespace) -> list[Row]:
    interval = arguments.jobs * TASKS / arguments.decisions
    first = time.time() + LEAD + FOR_EACH_DAG * arguments.jobs
    text = SPREAD.format(first=first, interval=interval, jobs=arguments.jobs, tasks=TASKS)
    (bench.folder / "dags" / "bench.py").write_text(text)
    bench.run("airflow", "dags", "reserialize", "--bundle-name", "bench")
    history = (text.replace("dmls.bench.", "dmls.live.") for text in (RUNS, TASK_ROWS))
    bench.execute(
        *(text.format(dags=DAGS, count=arguments.runs, tasks=TASKS) for text in history),
        "ANALYZE",
    )
    log = (bench.folder / "scheduler.log").open("wb")
    command = [sys.executable, "-m", "airflow", "scheduler", "--skip-serve-logs"]
    scheduler = subprocess.Popen(command, env=bench.environment, stdout=log, stderr=log)
    rows = []
    try:
        assert time.time() < first, "the DAGs were not serialized in time"
        time.sleep(first - time.time())
        for number in range(arguments.parts):
            before, begun = _cpu(bench, scheduler.pid), time.time()
            time.sleep(60 * arguments.minutes / arguments.parts)
            assert scheduler.poll() is None, (bench.folder / "scheduler.log").read_text()[-3000:]
            rows.append(_part(bench, number, begun, _cpu(bench, scheduler.pid) - before))
            print(rows[-1], file=sys.stderr, flush=True)
    finally:
        scheduler.send_signal(signal.SIGTERM)
        scheduler.wait(60)
    return rows


def _cpu(bench: Bench, pid: int) -> float:
    """Return the CPU time of the scheduler and of PostgreSQL's processes that run."""
    server = psutil.Process(bench.server)
    tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True), server]
    own = sum(sum(process.cpu_times()[:2]) for process in [*tree, *server.children()])
    return float(own + sum(server.cpu_times()[2:4]))


def _part(bench: Bench, number: int, begun: float, cpu: float) -> Row:
    """Return the figures of the runs that were due in a part of the time, except for its last seconds."""
    end = time.time()
    with psycopg.connect(bench.dsn) as connection:
        found = [row for row in connection.execute(LIVE) if begun <= row[0]]
    ended = sum(row[3] for row in found if row[2])
    settled = [row for row in found if row[0] < end - 60 and row[3] == TASKS]
    waiting = sum(row[0] < end - 60 and row[3] < TASKS for row in found)
    late = sorted(float(row[1] - row[0]) for row in settled)
    took = sorted(float(row[2] - row[1]) for row in settled)
    return {
        "part": number + 1,
        "minutes": (end - begun) / 60,
        "runs": len(found),
        "decisions/s": ended / (end - begun),
        "unfinished after 60 s": waiting,
        "late median s": statistics.median(late),
        "late p95 s": late[int(0.95 * len(late))],
        "run median s": statistics.median(took),
        "run p95 s": took[int(0.95 * len(took))],
        "CPU %": 100 * cpu / (end - begun),
        "CPU ms/decision": 1000 * cpu / ended,
    }


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--jobs", 10_000, "DAGs"),
        ("--decisions", 2.0, "tasks that become due each second"),
        ("--minutes", 60.0, "length of the measurement"),
        ("--parts", 6, "parts of it that are reported"),
        ("--runs", 100_000, "finished runs in the history"),
    )
