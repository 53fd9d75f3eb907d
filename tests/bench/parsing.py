"""CPU cost of a dynamic DAG: writing the DAG files, parsing and serializing them.

Run it with ``python tests/bench/parsing.py``. Each size gets a store, a bundle and a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run

SPEC = """
model = "random-forest-classifier"
n_trials = 5
[columns]
features = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
target = "species"
[n_estimators]
min = 50
max = {n}
[criterion]
values = ["gini", "entropy", "log_loss"]
"""

SCHEDULE = """
[data]
path = "data/dt={{date}}/*.parquet"
[schedule]
cron = "{minute} 6 * * 1"
timezone = "Europe/Vienna"
"""
"""Each job may have one of sixty cron strings."""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Measure each size with and without schedules, each in a process of its own.

    Ratios are against the smallest size without schedules.
    """
    rows = []
    sizes = arguments.sizes.split(",")
    for scheduled, size in [("no", size) for size in sizes] + [("yes", size) for size in sizes]:
        command = [sys.executable, __file__, "--one", size, scheduled]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    for row in rows:
        row["per DAG vs first"] = row["ms/DAG"] / rows[0]["ms/DAG"]
    return rows


def one(size: int, *, scheduled: bool) -> Row:
    """Build a registry of ``size`` jobs, and parse and serialize every file of its bundle."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        root = f"{folder}/root"
        kwargs = {"root": root, "runner": "process"}
        entry = {"name": "dmls", "classpath": "dmls_core.airflow.bundle.DmlsBundle", "kwargs": kwargs}
        os.environ |= {
            "AIRFLOW_HOME": folder,
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([entry]),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": f"{folder}/bundles",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        }
        _register(root, size, scheduled=scheduled)
        from airflow.dag_processing.dagbag import DagBag
        from airflow.serialization.serialized_objects import DagSerialization

        from dmls_core.airflow.bundle.bundle import DmlsBundle

        bundle = DmlsBundle(name="dmls", **kwargs)
        start = time.process_time()
        bundle.initialize()
        write = time.process_time() - start

        def cost(path: Path) -> tuple[float, float, int]:
            begin = time.process_time()
            dags = DagBag(path, bundle_path=bundle.path, bundle_name="dmls").dags
            parsed = time.process_time()
            for dag in dags.values():
                DagSerialization.to_dict(dag)
            return parsed - begin, time.process_time() - parsed, len(dags)

        files = sorted(bundle.path.glob("shard_*.py"))
        cost(bundle.path / "dmls_intake.py")  # imports that the DAG processor has made before it forks
        costs = [cost(path) for path in files]
        assert sum(count for *_, count in costs) == size
        parse, serialize = (sum(c[i] for c in costs) for i in (0, 1))
        return {
            "DAGs": size,
            "scheduled": "yes" if scheduled else "no",
            "files": len(files),
            "write ms/DAG": write / size * 1e3,
            "parse ms/DAG": parse / size * 1e3,
            "serialize ms/DAG": serialize / size * 1e3,
            "ms/DAG": (parse + serialize) / size * 1e3,
            "slowest file s": max(c[0] + c[1] for c in costs),
        }


def _register(root: str, size: int, *, scheduled: bool) -> None:
    from datetime import UTC, datetime

    from dmls_core.models import load_spec
    from dmls_core.store import ObjectInfo, Registry, open_store

    registry = Registry(open_store(root))
    now = datetime.now(UTC)
    for number in range(size):
        text = SPEC.format(n=100 + number % 50)
        spec = load_spec((text + SCHEDULE.format(minute=number % 60) if scheduled else text).encode())
        team, name = f"team{number % 7}", f"job{number}"
        data = ObjectInfo(f"incoming/{team}/{name}/data.csv", 100, f"{number:032x}", now)
        registry.accept(spec, team, name, [data], now)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(int(sys.argv[2]), scheduled=sys.argv[3] == "yes")))
    else:
        run(__doc__, measure, ("--sizes", "10,100,1000", "numbers of jobs, separated by commas"))
