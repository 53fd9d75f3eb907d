"""The table of jobs at 10,000 jobs: how long until the first rows, and a page; real S3, a real database.

Run it with ``python tests/bench/web.py``. A server that has just started builds the app, and imports, when
Airflow's own page asks for the icon of the entry in its navigation. "first rows" is the page asked for right
after that, with nothing read yet: the rows come from the registry's snapshot. "all answers read" is when the
background thread has read the answer beside every drop. After that, each row is the median of ``--requests``.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.models import load_spec
from dmls_core.spec import Spec
from dmls_core.store import DataObject, JobRecord, Store, open_store
from dmls_core.store.snapshots import Snapshots
from tests.bench.report import Row, run
from tests.services.seaweed import Seaweed

THREADS = 16
READ_SECONDS = 600


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Fill an S3 server and a database with jobs, and ask the app for its table."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        home = Path(scratch)
        seaweed = Seaweed(home / "s3")
        server = seaweed.start()
        try:
            root = f"s3://{server.bucket()}"
            configure(home, root, server.environment)
            version = fill_store(root, *make_records(arguments.jobs))
            fill_database(arguments.jobs, version)
            return ask(arguments.jobs, arguments.requests)
        finally:
            seaweed.kill()


def configure(home: Path, root: str, s3: dict[str, str]) -> None:
    """Set up Airflow, which reads its configuration when it is imported."""
    entry = {
        "name": "dmls",
        "classpath": "dmls_core.airflow.bundle.DmlsBundle",
        "kwargs": {"root": root, "runner": "process"},
    }
    connection = {
        "conn_type": "aws",
        "login": s3["AWS_ACCESS_KEY_ID"],
        "password": s3["AWS_SECRET_ACCESS_KEY"],
        "extra": {"endpoint_url": s3["AWS_ENDPOINT_URL"], "region_name": s3["AWS_DEFAULT_REGION"]},
    }
    os.environ |= {
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([entry]),
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
        **s3,
    }
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def places(jobs: int) -> list[tuple[str, str]]:
    """Return team and name of each job, fifty teams."""
    return [(f"team{number % 50:02d}", f"job{number:05d}") for number in range(jobs)]


def make_records(jobs: int) -> tuple[list[JobRecord], list[Spec]]:
    """Return the records of accepted jobs, and their specs."""
    models = ("random-forest-classifier", "xgboost-classifier", "lightgbm-classifier")
    specs = [load_spec(f'model = "{model}"\n[columns]\ntarget = "y"\n'.encode()) for model in models]
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    records = []
    for i, (team, name) in enumerate(places(jobs)):
        data = DataObject(f"incoming/{team}/{name}/data.csv", "e", 9)
        records.append(JobRecord(team, name, specs[i % 3].sha256, (data,), f"{i:016x}", now, 1))
    return records, specs


def fill_store(root: str, records: Sequence[JobRecord], specs: Sequence[Spec]) -> str:
    """Write what accepted jobs leave in S3: records, specs, answers, and the registry's snapshot.

    Return the snapshot's version.
    """
    store = open_store(root)
    for spec in specs:
        store.put(f"registry/specs/{spec.sha256}.json", spec.canonical())

    def write(record: JobRecord) -> None:
        place = f"{record.team}/{record.name}"
        write_record(store, record)
        status = {
            "schema": 1,
            "state": "deployed",
            "message": "deployed as version 1: accuracy 0.9000 on held-out rows",
            "job": place,
            "errors": [],
            "run_key": record.run_key,
            "links": {},
            "fingerprint": "",
            "updated": record.admitted,
            "run": "",
        }
        store.put(f"incoming/{place}/_status.json", json.dumps(status).encode())

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(write, records))
    return Snapshots(store).write(records)


def write_record(store: Store, record: JobRecord) -> None:
    """Write a job's record as the registry does."""
    document = json.dumps(record.as_json(), indent=2, sort_keys=True) + "\n"
    store.put(f"registry/jobs/{record.team}/{record.name}.json", document.encode())


def fill_database(jobs: int, version: str) -> None:
    """Write what Airflow's DAG processor leaves of as many DAGs."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    dags = [
        {
            "dag_id": f"dmls.{team}.{name}",
            "bundle_name": "dmls",
            "is_paused": False,
            "is_stale": False,
            "has_task_concurrency_limits": False,
            "timetable_type": "",
            "max_active_tasks": 16,
            "max_consecutive_failed_dag_runs": 0,
            "next_dagrun_create_after": datetime(2026, 1, 1, tzinfo=UTC),
        }
        for team, name in places(jobs)
    ]
    with create_session() as session:
        bundle = DagBundleModel(name="dmls")
        bundle.version = version
        session.add(bundle)
        session.flush()
        session.execute(insert(DagModel), dags)


def ask(jobs: int, requests: int) -> list[Row]:
    """Ask for the table, first with nothing in memory."""
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from dmls_core.web import PREFIX
    from dmls_core.web.plugin import LazyApp
    from dmls_core.web.services.job_index import job_index

    token = create_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="ADMIN"))
    airflow = FastAPI()
    airflow.mount(PREFIX, LazyApp())
    address = f"http://testserver{PREFIX}"
    client = TestClient(airflow, base_url=address, headers={"Authorization": f"Bearer {token}"})

    rows = [_row(jobs, "the entry's icon, of a new server", [_time(lambda: client.get("static/icon.svg"))])]
    rows.append(_row(jobs, "first rows, nothing in memory", [_time(lambda: client.get(""))]))
    began = time.perf_counter()
    while not job_index().snapshot().complete:
        if time.perf_counter() - began > READ_SECONDS:
            raise SystemExit("the answers were not read in time")
        time.sleep(0.1)
    rows.append(_row(jobs, "all answers read", [time.perf_counter() - began]))
    answer = client.get("api/v1/jobs", params={"limit": 50}).json()
    if (answer["total"], answer["jobs"][0]["state"]) != (jobs, "deployed"):
        raise SystemExit(f"the table is not as it was filled: {answer['total']} jobs")
    asked: dict[str, dict[str, Any]] = {
        "page of 50": {},
        "page of 50, by score": {"sort": "score"},
        "page of 50, searched": {"q": "job0777"},
        "page of 50, the last": {"offset": jobs - 50, "sort": "job", "descending": "false"},
        "page of 500": {"limit": 500},
    }
    for name, parameters in asked.items():
        times = [_time(lambda p=parameters: client.get("", params=p)) for _ in range(requests)]
        rows.append(_row(jobs, name, times))
    times = [_time(lambda: client.get("api/v1/jobs")) for _ in range(requests)]
    rows.append(_row(jobs, "API, 50 jobs", times))
    return rows


def _time(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - began
    answer.raise_for_status()
    return seconds


def _row(jobs: int, what: str, seconds: list[float]) -> Row:
    return {
        "jobs": jobs,
        "request": what,
        "median ms": statistics.median(seconds) * 1000,
        "slowest ms": max(seconds) * 1000,
    }


if __name__ == "__main__":
    run(__doc__, measure, ("--jobs", 10_000, "jobs"), ("--requests", 20, "requests of each kind"))
