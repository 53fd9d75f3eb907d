"""Two trainers share the search of two models, from a drop to a result."""

from __future__ import annotations

from typing import Any

from tests.e2e import data
from tests.services.platform_client import PlatformClient

SPEC = """model = ["random-forest-classifier", "xgboost-classifier"]
n_trials = 9

[columns]
target = "species"

[n_estimators]
min = 20
max = 60

[random-forest-classifier.max_features]
min = 0.2
max = 1.0

[learning_rate]
min = 0.01
max = 0.3
log = true

[search]
workers = 2
strategy = "random"

[deploy]
mode = "never"
"""


def drop_ahead(platform: PlatformClient) -> None:
    platform.drop("lab", "shared", SPEC, data.iris())


def test_two_workers_meet_n_trials_exactly(platform: PlatformClient):
    run = platform.wait_run("lab", "shared", "success")

    result = platform.run_file("lab", "shared", "result.json")
    trials = [
        platform.run_file("lab", "shared", key.split("/", 4)[4])
        for key in sorted(platform.keys(f"runs/lab/shared/{result['run_key']}/trials/"))
    ]
    assert result["n_trials"] == 9
    assert [trial["number"] for trial in trials] == list(range(9))
    assert {trial["model"] for trial in trials} == {"random-forest-classifier", "xgboost-classifier"}
    assert trials[result["best_trial"]]["model"] == result["model"]
    searches = {task["map_index"]: task for task in searches_of(platform, run["dag_run_id"])}
    assert searches.keys() == {0, 1}
    assert searches[0]["state"] == "success"
    # Skipped if the leader had the result before the other's task resumed.
    assert searches[1]["state"] in ("success", "skipped")
    # Of all that wait for a slot, every run's first trainer goes before any run's second.
    assert searches[0]["priority_weight"] > searches[1]["priority_weight"]
    logs = [log_of(platform, run["dag_run_id"], index) for index in searches]
    assert "searching" in logs[0]
    assert all("postgresql" not in log for log in logs)


def searches_of(platform: PlatformClient, run_id: str) -> list[dict[str, Any]]:
    path = f"/dags/dmls.lab.shared/dagRuns/{run_id}/taskInstances/search/listMapped"
    return platform.airflow("GET", path)["task_instances"]


def log_of(platform: PlatformClient, run_id: str, index: int) -> str:
    path = f"/dags/dmls.lab.shared/dagRuns/{run_id}/taskInstances/search/logs/1?map_index={index}"
    return str(platform.airflow("GET", path))
