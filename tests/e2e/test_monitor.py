"""Logged requests drift: the monitor DAG says so and has the job train again, once."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.services.platform_client import PlatformClient

TEAM, JOB = "clicks", "stream"
MONITOR = "/dags/dmls.monitor/dagRuns"

SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
target = "y"
[n_estimators]
value = 10
[data]
path = "data/{date}.csv"
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


def look(platform: PlatformClient, timeout: float = 180) -> dict[str, str]:
    """Start the monitor as a user would; return the states of its tasks when it has ended."""
    run = platform.airflow("POST", MONITOR, {"logical_date": None})["dag_run_id"]
    end = time.monotonic() + timeout
    while True:
        if platform.airflow("GET", f"{MONITOR}/{run}")["state"] in ("success", "failed"):
            found = platform.airflow("GET", f"{MONITOR}/{run}/taskInstances")["task_instances"]
            return {task["task_id"]: task["state"] for task in found}
        assert time.monotonic() < end
        time.sleep(0.5)


def drift_runs(platform: PlatformClient) -> list[dict[str, Any]]:
    return [run for run in platform.runs(TEAM, JOB) if run["dag_run_id"].startswith("drift__")]


@pytest.fixture(scope="module")
def served(platform: PlatformClient) -> dict[str, Any]:
    """The answer about a job that is served, and whose newest partition looks like its newest requests."""
    platform.put(f"incoming/{TEAM}/{JOB}/data/2026-01-05.csv", rows(0).write_csv())
    platform.drop(TEAM, JOB, SPEC, None)
    status = platform.wait_status(TEAM, JOB, "deployed")
    platform.put(f"incoming/{TEAM}/{JOB}/data/2026-01-06.csv", rows(1, shift=2).write_csv())
    return status


def test_drift_is_told_and_starts_one_run_on_the_newest_data(platform: PlatformClient, served):
    log_requests(platform, "steady", rows(2))
    assert look(platform) == {"compare": "success", "retrain": "skipped", "settle": "success"}
    assert "; later: no drift in 300 rows" in platform.status(TEAM, JOB)["message"]
    assert drift_runs(platform) == []

    log_requests(platform, "shifted", rows(3, shift=2))
    assert look(platform) == {"compare": "success", "retrain": "success", "settle": "success"}
    found = json.loads(platform.get(f"monitor/{TEAM}/{JOB}/latest/drift.json") or b"{}")
    assert found["verdict"] == "drifted"
    assert found["rows"] == 300
    metrics = platform.get(f"monitor/{TEAM}/{JOB}/latest/drift.prom") or b""
    assert f'dmls_drift_detected{{team="{TEAM}",job="{JOB}"}} 1'.encode() in metrics
    (run,) = drift_runs(platform)
    assert found["run_key"] in run["dag_run_id"]

    end = time.monotonic() + 180
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
    assert [part["key"].rpartition("/")[2] for part in record["data"]] == ["2026-01-06.csv"]


def test_what_was_compared_is_not_compared_again(platform: PlatformClient, served):
    before = platform.keys(f"monitor/{TEAM}/{JOB}/")
    assert look(platform) == {"compare": "success", "retrain": "skipped", "settle": "success"}
    assert platform.keys(f"monitor/{TEAM}/{JOB}/") == before
