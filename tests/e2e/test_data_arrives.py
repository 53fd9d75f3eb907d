"""``[schedule] on = "data"``: a new partition starts a run, and no worker waits for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e import data
from tests.services.platform_client import PATIENCE, PlatformClient
from tests.services.platform_home import eventually
from tests.support.webhook import Webhook, webhook

TEAM, JOB = "clicks", "arrivals"
FOLDER = f"incoming/{TEAM}/{JOB}/data"

SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
target = "y"
[n_estimators]
value = 10
[data]
path = "data/{date}.csv"
[schedule]
on = "data"
deadline = 1
[owner]
notify = ["webhook:late"]
[deploy]
mode = "never"
"""


@contextmanager
def late(platform: PlatformClient) -> Iterator[Webhook]:
    """A webhook behind Airflow's connection ``dmls_webhook_late``."""
    with webhook() as received:
        connection = {"connection_id": "dmls_webhook_late", "conn_type": "http", "host": "127.0.0.1"}
        platform.airflow("POST", "/connections", connection | {"port": received.port})
        yield received
        platform.airflow("DELETE", "/connections/dmls_webhook_late")


def day(rows: int) -> str:
    return data.to_csv(["a", "y"], [[row % 10, "high" if row % 10 > 4 else "low"] for row in range(rows)])


def ended(platform: PlatformClient, count: int) -> list[dict[str, Any]]:
    """Wait until so many runs have ended, and return what each of them read, in order."""
    end = time.monotonic() + PATIENCE
    while True:
        dag = platform.dag_exists(f"dmls.{TEAM}.{JOB}")
        runs = platform.runs(TEAM, JOB) if dag else []
        assert not [run for run in runs if run["state"] == "failed"], platform.status(TEAM, JOB)
        if len([run for run in runs if run["state"] == "success"]) == count:
            break
        assert time.monotonic() < end, (runs, platform.status(TEAM, JOB))
        time.sleep(0.5)
    recorded = {}
    for key in platform.keys(f"runs/{TEAM}/{JOB}/"):
        if key.endswith("/run.json"):
            found = json.loads(platform.get(key) or b"{}")
            recorded[found["run_id"]] = found
    return [recorded[run["dag_run_id"]] for run in sorted(runs, key=lambda run: run["run_after"])]


def drop_ahead(platform: PlatformClient) -> None:
    platform.put(f"{FOLDER}/2026-03-02.csv", day(40))
    platform.drop(TEAM, JOB, SPEC, None)


def test_each_new_newest_partition_is_trained_on_once(platform: PlatformClient):
    (first,) = ended(platform, 1)
    assert [item["key"] for item in first["data"]] == [f"{FOLDER}/2026-03-02.csv"]

    # Nothing of the job runs, waits or is deferred: what listens is the one watcher of all jobs.
    tasks = platform.airflow("GET", f"/dags/dmls.{TEAM}.{JOB}/dagRuns/~/taskInstances")["task_instances"]
    assert {task["state"] for task in tasks} <= {"success", "skipped"}

    with late(platform) as received:
        # A partition that is older than the newest one starts nothing; a newer one does.
        platform.put(f"{FOLDER}/2026-03-01.csv", day(30))
        platform.put(f"{FOLDER}/2026-03-03.csv", day(50))
        _, second = ended(platform, 2)
        assert [item["key"] for item in second["data"]] == [f"{FOLDER}/2026-03-03.csv"]
        assert second["interval"] == ["2026-03-03T00:00:00+00:00", "2026-03-04T00:00:00+00:00"]
        result = json.loads(platform.get(f"runs/{TEAM}/{JOB}/{second['run_key']}/result.json") or b"{}")
        assert result["data"]["rows"] == 50

        # No training ends within a second: the triggerer notifies the owner that the run is late.
        eventually(lambda: received.heard)
    (message,) = received.contents
    assert (message["event"], message["job"]) == ("late", f"{TEAM}/{JOB}")
    assert message["links"]["airflow"]
