"""Many jobs on a real platform: a cold start, new submissions, and the page.

The platform starts with ``--jobs`` accepted jobs whose runs have ended. Seconds are from the start of
``dmls up`` until Airflow has parsed all DAGs, and from an upload until its DAG is there and its first task
has started. Each submission trains one small forest, as users' submissions do. Half of the submissions come
one at a time, the other half while earlier ones are trained, which keeps two slow cores busy.

Run it with ``python tests/bench/many_jobs.py`` on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.airflow.jobs.timetables import submission_run_id
from dmls_core.devstack.context import load_identity
from tests.bench.report import Row, run
from tests.bench.web import fill_store, make_records
from tests.e2e import data
from tests.services.demo_platform import NO_ENGINE, Demo, dmls, marked_processes
from tests.services.platform_client import PlatformClient

SPEC = data.SMALL_IRIS.replace("n_trials = 2", "n_trials = 1")
TEAM = "live"
PATIENCE = 900.0

KNOWN = """
SELECT count(*) FROM dag JOIN serialized_dag USING (dag_id)
WHERE dag_id LIKE 'dmls.team%%' AND NOT is_stale AND last_parsed_time > %s
"""

ENDED = """
INSERT INTO dag_run (dag_id, run_id, run_type, state, logical_date, data_interval_start, data_interval_end,
                     run_after, queued_at, start_date, end_date, clear_number, log_template_id, updated_at,
                     span_status)
VALUES (%s, %s, 'scheduled', 'success', %s, %s, %s, %s, now(), now(), now(), 0,
        (SELECT max(id) FROM log_template), now(), 'ended')
"""

DAG = "SELECT 1 FROM serialized_dag WHERE dag_id = %s"
TRAINED = """
SELECT 1 FROM dag_run LEFT JOIN task_instance USING (dag_id, run_id)
WHERE dag_id = %s AND (dag_run.state IN ('success', 'failed') OR task_instance.state = 'awaiting_input')
"""

FIRST_TASK = "SELECT 1 FROM task_instance WHERE dag_id = %s AND start_date IS NOT NULL"


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Start the platform with the jobs, submit new ones, and ask for the page."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        home = Path(scratch) / ".dmls"
        try:
            database = fill(home, arguments.jobs)
            return {
                "cold start": [cold_start(home, database, arguments.jobs)],
                "submissions": submissions(home, database, arguments),
                "page": page(home, arguments.jobs),
            }
        finally:
            command(home, "down")


def command(home: Path, *arguments: str) -> None:
    """Run ``dmls`` for the platform, without a Docker engine."""
    done = dmls(home, *arguments, timeout=PATIENCE, DOCKER_HOST=NO_ENGINE)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def fill(home: Path, jobs: int) -> str:
    """Write the jobs, and the runs of their versions; return the address of Airflow's database."""
    command(home, "up")
    client = PlatformClient(home / "platform.json")
    address = Demo("", 0, home).airflow_environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    database = "postgresql://" + address.partition("://")[2]
    os.environ.update(client.state["environment"])
    records, specs = make_records(jobs)
    rows = [
        (f"dmls.{one.team}.{one.name}", submission_run_id(one.version, one.run_key), *4 * (one.admitted,))
        for one in records
    ]
    with psycopg.connect(database) as connection, connection.cursor() as cursor:
        cursor.executemany(ENDED, rows)
    fill_store(client.settings["root"], records, specs)
    command(home, "down")
    return database


def cold_start(home: Path, database: str, jobs: int) -> Row:
    """Measure until Airflow has parsed the DAGs of all jobs."""
    began, before = time.monotonic(), datetime.now(UTC)
    starting = threading.Thread(target=command, args=(home, "up"))
    starting.start()
    connection = _connect(database)
    while (known := connection.execute(KNOWN, (before,)).fetchone()[0]) < jobs:
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"{known} of {jobs} DAGs are known after {PATIENCE:.0f} s")
        time.sleep(0.5)
    seconds = time.monotonic() - began
    starting.join()
    return {"jobs": jobs, "all DAGs s": seconds, "CPU s of the platform": _cpu_seconds(home)}


def submissions(home: Path, database: str, arguments: argparse.Namespace) -> list[Row]:
    """Measure how long submissions, at random moments, wait for their DAG and their run."""
    client, pause, rows = PlatformClient(home / "platform.json"), random.Random(1), []
    with _connect(database) as connection:
        for alone in (True, False):
            visible, started = [], []
            for number in range(arguments.drops // 2):
                time.sleep(pause.uniform(0, 20))
                job = f"job{number}-{'alone' if alone else 'busy'}"
                client.drop(TEAM, job, SPEC, data.iris())
                dropped = time.monotonic()
                visible.append(_wait(connection, DAG, job, dropped))
                started.append(_wait(connection, FIRST_TASK, job, dropped))
                if alone:
                    _wait(connection, TRAINED, job, dropped)
            for until, seconds in (("its DAG is there", visible), ("its run has started", started)):
                rows.append(
                    {
                        "jobs": arguments.jobs,
                        "others in training": "no" if alone else "yes",
                        "until": until,
                        "median s": statistics.median(seconds),
                        "p95 s": sorted(seconds)[max(0, round(0.95 * len(seconds)) - 1)],
                        "slowest s": max(seconds),
                    }
                )
    return rows


def page(home: Path, jobs: int) -> list[Row]:
    """Measure the table of jobs and its REST answer, over HTTP."""
    client, rows = PlatformClient(home / "platform.json"), []
    for path in ("/dmls/", "/dmls/?q=job0777", "/dmls/api/v1/jobs"):
        url = client.settings["airflow_url"].rstrip("/") + path
        request = Request(url, headers={"Authorization": f"Bearer {client.token}"})
        times = []
        for _ in range(20):
            began = time.perf_counter()
            with urlopen(request, timeout=60) as answer:
                answer.read()
            times.append(1000 * (time.perf_counter() - began))
        rows.append(
            {"jobs": jobs, "page": path, "median ms": statistics.median(times), "slowest ms": max(times)}
        )
    return rows


def _wait(connection: psycopg.Connection[Any], query: str, job: str, since: float) -> float:
    """Return the seconds until a query about the job's DAG finds a row."""
    while (seconds := time.monotonic() - since) < PATIENCE:
        if connection.execute(query, (f"dmls.{TEAM}.{job}",)).fetchone():
            return seconds
        time.sleep(0.1)
    raise SystemExit(f"{TEAM}/{job}: nothing after {PATIENCE:.0f} s")


def _connect(database: str) -> psycopg.Connection[Any]:
    """Connect to Airflow's database as soon as it answers."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return psycopg.connect(database, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _cpu_seconds(home: Path) -> float:
    """Return the CPU time that the platform's processes have used."""
    used = 0.0
    for process in marked_processes(load_identity(home / "identity.json").id):
        with suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


if __name__ == "__main__":
    run(__doc__, measure, ("--jobs", 10_000, "jobs"), ("--drops", 40, "submissions"))
