"""What the bundle of a platform with many jobs costs: its start, a refresh, a change, and a restart; real S3.

Run it with ``python tests/bench/bundle.py``. CPU seconds are of this process and of the S3 server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.store import ObjectInfo, Registry, open_store
from tests.bench.report import Row, run
from tests.bench.web import THREADS, make_records, write_record
from tests.services.seaweed import Seaweed


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Fill an S3 server with jobs, and refresh a bundle as the DAG processor does."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        home = Path(scratch)
        seaweed = Seaweed(home / "s3")
        server = seaweed.start()
        try:
            return _measure(home, f"s3://{server.bucket()}", server.environment, arguments.jobs)
        finally:
            seaweed.kill()


def _measure(home: Path, root: str, s3: dict[str, str], jobs: int) -> list[Row]:
    kwargs = {"root": root, "runner": "process"}
    entry = {"name": "dmls", "classpath": "dmls_core.airflow.bundle.DmlsBundle", "kwargs": kwargs}
    connection = {
        "conn_type": "aws",
        "login": s3["AWS_ACCESS_KEY_ID"],
        "password": s3["AWS_SECRET_ACCESS_KEY"],
        "extra": {"endpoint_url": s3["AWS_ENDPOINT_URL"], "region_name": s3["AWS_DEFAULT_REGION"]},
    }
    os.environ |= {
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([entry]),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(home / "bundles"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
        **s3,
    }
    store = open_store(root)
    records, specs = make_records(jobs)
    for spec in specs:
        store.put(f"registry/specs/{spec.sha256}.json", spec.canonical())
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda record: write_record(store, record), records))

    from dmls_core.airflow import database
    from dmls_core.airflow.bundle.bundle import DmlsBundle

    # Without Airflow's database, which has few rows of what the bundle asks for.
    database.create_session = lambda **_: nullcontext()  # type: ignore[assignment]
    database.dag_files = lambda *_: {}  # type: ignore[assignment]
    servers = [process for process in psutil.process_iter() if _is_below(process, home / "s3")]
    rows: list[Row] = []

    def timed(what: str, work: Callable[[], object]) -> None:
        began, own, others = time.perf_counter(), time.process_time(), _cpu_seconds(servers)
        work()
        rows.append(
            {
                "jobs": jobs,
                "what": what,
                "s": time.perf_counter() - began,
                "CPU s": time.process_time() - own,
                "CPU s of S3": _cpu_seconds(servers) - others,
            }
        )

    bundle = DmlsBundle(name="dmls", **kwargs)
    timed("first start", bundle.initialize)
    bundle._refresh()
    timed("refresh without a change", bundle._refresh)
    data = ObjectInfo("incoming/live/new/data.csv", 9, "e", datetime.now(UTC))
    Registry(store).accept(specs[0], "live", "new", [data], datetime.now(UTC))
    timed("refresh after a change", bundle._refresh)
    timed("restart", DmlsBundle(name="dmls", **kwargs)._refresh)
    return rows


def _is_below(process: psutil.Process, folder: Path) -> bool:
    try:
        return str(folder) in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


if __name__ == "__main__":
    run(__doc__, measure, ("--jobs", 10_000, "jobs"))
