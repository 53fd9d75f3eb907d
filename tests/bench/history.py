"""Whether finished runs in Airflow's database slow its scheduler, and what ``dmls clean`` costs.

A real scheduler on PostgreSQL schedules DAGs of empty tasks, which need no worker, run after run. The CPU
time of its loops, PostgreSQL's included, is measured without history, with finished runs of eight tasks each,
and after ``dmls clean``::

    python tests/bench/history.py
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.airflow.settings import BUNDLE_CLASSPATH
from dmls_core.devstack.context import Context, ensure_runtime_folder, load_identity
from dmls_core.devstack.platform import choose_ports
from dmls_core.devstack.postgres import PORTS, database_url, initialize, make_databases, postgres_service
from tests.bench.report import Row, run

DAGS = 20
TASKS = 8

DAG_FILE = f"""
import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

options = {{"schedule": "@continuous", "start_date": pendulum.datetime(2026, 1, 1), "catchup": False}}
for number in range({DAGS}):
    with DAG(f"dmls.bench.job{{number}}", max_active_runs=1, is_paused_upon_creation=False, **options) as dag:
        last = None
        for step in range({TASKS}):
            task = EmptyOperator(task_id=f"step{{step}}")
            if last is not None:
                last >> task
            last = task
    globals()[dag.dag_id] = dag
"""

RUNS = """
INSERT INTO dag_run (dag_id, run_id, run_type, state, logical_date, run_after, queued_at, start_date,
                     end_date, clear_number, log_template_id, updated_at, span_status)
SELECT 'dmls.bench.job' || i %% {dags}, 'old__' || i, 'manual', 'success', t, t, t, t,
       t + interval '1 minute', 0, (SELECT max(id) FROM log_template), t, 'ended'
FROM (SELECT i, now() - interval '400 days' + i * interval '4 minutes' * 70000.0 / {count} AS t
      FROM generate_series(1, {count}) AS i) AS made
"""

FINISHED = "SELECT count(*) FROM dag_run WHERE state = 'success' AND run_id NOT LIKE 'old%'"

TASK_ROWS = """
INSERT INTO task_instance (id, task_id, dag_id, run_id, map_index, start_date, end_date, duration, state,
                           try_number, max_tries, pool, pool_slots, queue, priority_weight, operator,
                           updated_at, dag_version_id, span_status, executor_config)
SELECT gen_random_uuid(), 'step' || step, r.dag_id, r.run_id, -1, r.start_date, r.end_date, 60, 'success',
       1, 0, 'default_pool', 1, 'default', 1, 'EmptyOperator', r.end_date,
       (SELECT id FROM dag_version v WHERE v.dag_id = r.dag_id LIMIT 1), 'ended', '\\x80057d942e'
FROM dag_run r, generate_series(0, {tasks} - 1) AS step WHERE r.run_id LIKE 'old\\_\\_%%'
"""


@contextmanager
def postgres(folder: Path):
    """Run a PostgreSQL server as the embedded platform does."""
    identity = load_identity(folder / "identity.json")
    ensure_runtime_folder(identity)
    identity.ports = choose_ports(list(PORTS), {}, {}, [])
    context = Context(folder, identity)
    log = folder / "postgres.log"
    initialize(context, dict(os.environ), log)
    service = postgres_service(context)
    with log.open("ab") as stream:
        process = subprocess.Popen(service.command, cwd=service.folder, stdout=stream, stderr=stream)
    try:
        while not service.ready(0.0):
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        make_databases(context)
        yield context, process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


class Bench:
    """Airflow's scheduler on one database."""

    def __init__(self, context: Context, server: int, folder: Path) -> None:
        self.server, self.folder = server, folder
        bundle = {
            "name": "dmls",
            "classpath": BUNDLE_CLASSPATH,
            "kwargs": {"root": str(folder / "root"), "runner": "process"},
        }
        url = database_url(context, "airflow", "psycopg2")
        self.dsn = url.replace("+psycopg2", "")
        dags = folder / "dags"
        dags.mkdir()
        (dags / "bench.py").write_text(DAG_FILE)
        local = {
            "name": "bench",
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(dags)},
        }
        self.environment = os.environ | {
            "AIRFLOW_HOME": str(folder / "home"),
            "DMLS_HOME": str(folder / "none"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([local, bundle]),
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.replace("%%", "%"))

    def value(self, query: str) -> float:
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return float(row[0] or 0)

    def row(self, state: str, loops: int) -> Row:
        """Return the figures of one state of the database."""
        runs = int(self.value("SELECT count(*) FROM dag_run WHERE run_id LIKE 'old%'"))
        before = self.cpu_seconds()
        self.schedule(1)
        start = self.cpu_seconds() - before
        first = self.value(FINISHED)
        self.schedule(loops + 1)
        cost = 1000 * (self.cpu_seconds() - before - 2 * start) / loops
        print(f"{state}: {runs} finished runs, {cost:.1f} ms", file=sys.stderr)
        found = {"state": state, "finished runs": runs, "CPU ms/loop": cost}
        return found | {"new runs": self.value(FINISHED) - first, "CPU s of dmls clean": ""}

    def schedule(self, loops: int) -> None:
        """Run the scheduler for a number of its loops."""
        self.run("airflow", "scheduler", "--skip-serve-logs", "--num-runs", str(loops))

    def cpu_seconds(self) -> float:
        """Return the CPU time of the commands that have ended, and of PostgreSQL with ended backends."""
        commands = resource.getrusage(resource.RUSAGE_CHILDREN)
        server = psutil.Process(self.server)
        backends = sum(sum(child.cpu_times()[:2]) for child in server.children())
        return commands.ru_utime + commands.ru_stime + sum(server.cpu_times()[:4]) + backends


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Return the rate in each of the three states of the database."""
    with tempfile.TemporaryDirectory(prefix="dmls-history-") as name:
        folder = Path(name)
        state = folder / "postgres"
        state.mkdir()
        with postgres(state) as (context, server):
            bench = Bench(context, server, folder)
            bench.run("airflow", "db", "migrate")
            bench.run("airflow", "dags", "reserialize", "--bundle-name", "bench")
            rows = [bench.row("no history", arguments.loops)]
            history = RUNS.format(dags=DAGS, count=arguments.runs), TASK_ROWS.format(tasks=TASKS)
            bench.execute(*history, "ANALYZE")
            rows.append(bench.row("history", arguments.loops))
            before = bench.cpu_seconds()
            bench.run("dmls_core.cli", "clean", "--yes")
            rows[-1]["CPU s of dmls clean"] = bench.cpu_seconds() - before
            rows.append(bench.row("after dmls clean", arguments.loops))
    for row in rows:
        row["loop vs no history"] = row["CPU ms/loop"] / rows[0]["CPU ms/loop"]
    return rows


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--runs", 100_000, "finished runs"),
        ("--loops", 100, "loops of each measurement"),
    )
