"""Requests and new partitions drift: the monitor DAG reports it and starts one retraining."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest

from tests.services.platform_client import PATIENCE, PlatformClient

TEAM, JOB = "clicks", "stream"
MONITOR = "/dags/dmls.monitor/dagRuns"
OTHER_TASKS = ("collect", "repair", "reap", "clean")

SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
target = "y"
[n_estimators]
value = 10
[data]
path = "data/{date}.csv"
labels = "labels/*.csv"
[deploy]
mode = "auto"
[drift]
action = "retrain"
"""


def rows(seed: int, shift: float = 0.0, count: int = 300) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=count), draw.normal(size=count) + shift
    return pl.DataFrame({"a": a, "b": b, "y": np.where(a + b > shift, "yes", "no")})


def log_requests(platform: PlatformClient, name: str, frame: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    frame.drop("y").write_parquet(buffer)
    platform.put(f"inference/{TEAM}/{JOB}/{name}.parquet", buffer.getvalue())


def run_monitor(platform: PlatformClient, timeout: float = 600) -> dict[str, str]:
    """Trigger the monitor DAG as a user would; return the states of its drift tasks."""
    run = platform.airflow("POST", MONITOR, {"logical_date": None})["dag_run_id"]
    end = time.monotonic() + timeout
    while True:
        if platform.airflow("GET", f"{MONITOR}/{run}")["state"] in ("success", "failed"):
            found = platform.airflow("GET", f"{MONITOR}/{run}/taskInstances")["task_instances"]
            states = {task["task_id"]: task["state"] for task in found}
            others = {name: states.pop(name) for name in OTHER_TASKS}
            # Other tests may have left models that cannot be repaired.
            assert {others["collect"], others["reap"], others["clean"]} == {"success"}
            return states
        assert time.monotonic() < end
        time.sleep(0.5)


def drift_runs(platform: PlatformClient) -> list[dict[str, Any]]:
    return [run for run in platform.runs(TEAM, JOB) if run["dag_run_id"].startswith("drift__")]


def with_answers(frame: pl.DataFrame, wrong: int) -> pl.DataFrame:
    """Return rows as the inference log has them, of which the first few were answered wrong."""
    order = pl.int_range(pl.len())
    yes = (pl.col("y") == "yes") ^ (order < wrong)
    return frame.with_columns(
        **{
            "dmls.request_id": pl.format("order {}", order),
            "dmls.row": pl.lit(0, dtype=pl.Int32),
            "dmls.version": pl.lit(1),
            "dmls.prediction": pl.when(yes).then(pl.lit("yes")).otherwise(pl.lit("no")),
            "dmls.probability.no": pl.when(yes).then(0.2).otherwise(0.8),
            "dmls.probability.yes": pl.when(yes).then(0.8).otherwise(0.2),
        }
    )


def drop_ahead(platform: PlatformClient) -> None:
    platform.put(f"incoming/{TEAM}/{JOB}/data/2026-01-05.csv", rows(0).write_csv())
    platform.drop(TEAM, JOB, SPEC, None)


@pytest.fixture(scope="module")
def served(platform: PlatformClient) -> dict[str, Any]:
    """The answer about a job that is served."""
    return platform.wait_status(TEAM, JOB, "deployed")


def compared(platform: PlatformClient, place: str) -> dict[str, Any]:
    found = json.loads(platform.get(f"monitor/{TEAM}/{JOB}/{place}/drift.json") or b"{}")
    return {key: found[key] for key in ("source", "verdict", "rows")}


def test_drift_is_reported_and_starts_one_run_on_the_newest_data(platform: PlatformClient, served):
    platform.put(f"incoming/{TEAM}/{JOB}/data/2026-01-06.csv", rows(1, count=200).write_csv())
    answered = with_answers(rows(2), wrong=20)
    log_requests(platform, "steady", answered)
    truth = answered.select(pl.col("dmls.request_id").alias("request_id"), "y")
    platform.put(f"incoming/{TEAM}/{JOB}/labels/first.csv", truth.write_csv())
    assert run_monitor(platform) == {"compare": "success", "retrain": "skipped", "settle": "success"}
    assert compared(platform, "latest") == {"source": "requests", "verdict": "steady", "rows": 300}
    steady = {"source": "data/2026-01-06.csv", "verdict": "steady", "rows": 200}
    assert compared(platform, "latest-data") == steady
    assert "; later: no drift in 300 rows" in platform.status(TEAM, JOB)["message"]
    judged = json.loads(platform.get(f"monitor/{TEAM}/{JOB}/latest-labels/decay.json") or b"{}")
    (version,) = judged["versions"]
    assert (judged["verdict"], version["rows"], version["score"]) == ("steady", 300, pytest.approx(280 / 300))
    assert "on 300 labeled predictions of version 1" in platform.status(TEAM, JOB)["message"]
    assert "300 labeled predictions" in platform.champion(f"{TEAM}.{JOB}")["tags"]["dmls.decay"]
    assert drift_runs(platform) == []

    platform.put(f"incoming/{TEAM}/{JOB}/data/2026-01-07.csv", rows(4, shift=2, count=400).write_csv())
    log_requests(platform, "shifted", rows(3, shift=2))
    # At the full hour the monitor's own run may have been quicker, and this one has nothing left to do.
    assert run_monitor(platform).items() >= {"compare": "success", "settle": "success"}.items()
    assert compared(platform, "latest") == {"source": "requests", "verdict": "drifted", "rows": 300}
    drifted = {"source": "data/2026-01-07.csv", "verdict": "drifted", "rows": 400}
    assert compared(platform, "latest-data") == drifted
    for place, source in (("latest", "requests"), ("latest-data", "data")):
        metrics = platform.get(f"monitor/{TEAM}/{JOB}/{place}/drift.prom") or b""
        labels = f'{{job="{JOB}",source="{source}",team="{TEAM}"}}'
        assert f"dmls_drift_detected{labels} 1.0" in metrics.decode()
    (run,) = drift_runs(platform)
    assert served["run"] in run["dag_run_id"]

    end = time.monotonic() + PATIENCE
    while (state := drift_runs(platform)[0]["state"]) not in ("success", "failed"):
        assert time.monotonic() < end
        time.sleep(1)
    assert state == "success"
    records = [
        json.loads(platform.get(key) or b"{}")
        for key in platform.keys(f"runs/{TEAM}/{JOB}/")
        if key.endswith("/run.json")
    ]
    (record,) = [record for record in records if record.get("run_id") == run["dag_run_id"]]
    assert [part["key"].rpartition("/")[2] for part in record["data"]] == ["2026-01-07.csv"]
    # What was trained on the drifted data does better on it, and is served now.
    assert platform.champion(f"{TEAM}.{JOB}")["tags"]["dmls.run_key"] == record["run_key"]


KILLED_ROLLBACK = """
import os, signal, sys
from dmls_core.cli.main import app
from dmls_core.tracking import registry
registry.promote_served = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
app(["rollback", sys.argv[1]])
"""


def served_versions(platform: PlatformClient) -> list[str]:
    address = f"http://{platform.settings['triton_http']}/v2/models/{TEAM}.{JOB}"
    return httpx.get(address, timeout=30).json().get("versions", [])


@pytest.mark.nightly("`integration/test_rollback.py` repairs the same difference of Triton and MLflow")
def test_a_rollback_whose_process_is_killed_is_undone(platform: PlatformClient, served):
    """Triton has changed and MLflow has not: the repair makes them agree, by itself."""
    champion = platform.champion(f"{TEAM}.{JOB}")["tags"]["dmls.triton_version"]
    assert served_versions(platform) == [champion]
    environment = os.environ | {"DMLS_HOME": str(platform.state_file.parent)}
    done = subprocess.run(
        [sys.executable, "-c", KILLED_ROLLBACK, f"{TEAM}/{JOB}"], env=environment, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert served_versions(platform) != [champion]
    end = time.monotonic() + PATIENCE
    while served_versions(platform) != [champion]:
        assert time.monotonic() < end
        time.sleep(1)
    runs = platform.airflow("GET", "/dags/dmls.repair/dagRuns")["dag_runs"]
    assert [run["run_type"] for run in runs] == ["asset_triggered"] * len(runs)
