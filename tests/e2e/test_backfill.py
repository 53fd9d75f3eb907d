"""A scheduled job over weekly partitions: its own run, and a backfill of earlier weeks over REST."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e import data
from tests.services.platform_client import PlatformClient

TEAM, JOB = "weather", "weekly"
DAG = f"dmls.{TEAM}.{JOB}"
MODEL = f"{TEAM}.{JOB}"
ROWS = 60
PAST = ("2026-01-05", "2026-01-12", "2026-01-19")
NEWEST = "2026-01-26"
ENDS = {"2026-01-05": "2026-01-12", "2026-01-12": "2026-01-19", "2026-01-19": "2026-01-26"}

SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
features = ["a", "b"]
target = "y"
[n_estimators]
value = {trees}
[data]
path = "data/dt={{date}}/part-*.csv"
window = "all"
[schedule]
cron = "0 0 * * 1"
jitter = 0
[deploy]
mode = "auto"
"""

POISON = data.to_csv(["a", "b", "y"], [["poison", "venom", ("bad", "worse")[row % 2]] for row in range(ROWS)])


def week(number: int) -> str:
    rows: list[list[object]] = [
        [(row * 7 + number) % 10, row % 3, "high" if (row * 7 + number) % 10 > 4 else "low"]
        for row in range(ROWS)
    ]
    return data.to_csv(["a", "b", "y"], rows)


def runs_by_id(platform: PlatformClient) -> dict[str, dict[str, Any]]:
    """Return what each run recorded of itself, by Airflow's name of the run."""
    keys = [key for key in platform.keys(f"runs/{TEAM}/{JOB}/") if key.endswith("/run.json")]
    found = [json.loads(platform.get(key) or b"{}") for key in keys]
    return {run["run_id"]: run for run in found}


def model_versions(platform: PlatformClient) -> list[dict[str, Any]]:
    path = f"/api/2.0/mlflow/model-versions/search?filter={quote(f'name = {MODEL!r}')}"
    with urllib.request.urlopen(platform.settings["mlflow_uri"] + path, timeout=30) as answer:
        versions = json.loads(answer.read())["model_versions"]
    return [version | {"tags": {t["key"]: t["value"] for t in version["tags"]}} for version in versions]


def wait_ended(platform: PlatformClient, run_type: str, count: int, timeout: float = 300) -> list[Any]:
    """Wait until so many runs of a type have ended well."""
    end = time.monotonic() + timeout
    while True:
        runs = [run for run in platform.runs(TEAM, JOB) if run["run_type"] == run_type]
        assert all(run["state"] != "failed" for run in runs), runs
        if len([run for run in runs if run["state"] == "success"]) == count:
            return runs
        assert time.monotonic() < end, runs
        time.sleep(1)


def wait_deferred(platform: PlatformClient, day: str, timeout: float = 180) -> None:
    """Wait until the first task of a day's run has left its worker."""
    end = time.monotonic() + timeout
    while True:
        (run,) = [run for run in platform.runs(TEAM, JOB) if (run["logical_date"] or "")[:10] == day]
        states = {t["task_id"]: t["state"] for t in platform.tasks(TEAM, JOB, run["dag_run_id"])}
        if states.get("validate") == "deferred":
            return
        assert time.monotonic() < end, states
        time.sleep(1)


@pytest.fixture(scope="module")
def backfilled(platform: PlatformClient) -> list[dict[str, Any]]:
    """The runs of a backfill over three past weeks, begun while the newest week's model was served.

    The last of the three weeks arrives when its run waits for it.
    """
    weeks = {day: week(number) for number, day in enumerate((*PAST, NEWEST))}
    late = weeks.pop(PAST[-1])
    for day, rows in weeks.items():
        platform.put(f"incoming/{TEAM}/{JOB}/data/dt={day}/part-0.csv", rows)
    platform.drop(TEAM, JOB, SPEC.format(trees=10), None)
    platform.wait_status(TEAM, JOB, "deployed")
    # A run that read them would have other rows, features and labels.
    platform.put(f"incoming/{TEAM}/{JOB}/data/dt=2026-02-02/part-0.csv", POISON)
    platform.put(f"incoming/{TEAM}/{JOB}/data/dt={NEWEST}/part-1.csv", POISON)
    asked = {
        "dag_id": DAG,
        "from_date": f"{PAST[0]}T00:00:00Z",
        "to_date": f"{PAST[-1]}T00:00:00Z",
        "reprocess_behavior": "none",
        "max_active_runs": 3,
    }
    dry = platform.airflow("POST", "/backfills/dry_run", asked)["backfills"]
    assert [entry["logical_date"][:10] for entry in dry] == list(PAST)
    platform.airflow("POST", "/backfills", asked)
    wait_deferred(platform, PAST[-1])
    platform.put(f"incoming/{TEAM}/{JOB}/data/dt={PAST[-1]}/part-0.csv", late)
    return wait_ended(platform, "backfill", len(PAST))


def test_each_run_trains_on_its_own_weeks_and_no_later_row(platform: PlatformClient, backfilled):
    recorded = runs_by_id(platform)
    for count, day in enumerate(PAST, 1):
        (run,) = [run for run in backfilled if run["logical_date"][:10] == day]
        own = recorded[run["dag_run_id"]]
        files = [f"incoming/{TEAM}/{JOB}/data/dt={earlier}/part-0.csv" for earlier in PAST[:count]]
        assert own["interval"] == [f"{day}T00:00:00+00:00", f"{ENDS[day]}T00:00:00+00:00"]
        assert [item["key"] for item in own["data"]] == files
        result = json.loads(platform.get(f"runs/{TEAM}/{JOB}/{own['run_key']}/result.json") or b"{}")
        assert (result["data"]["rows"], result["labels"]) == (ROWS * count, ["high", "low"])
        assert [item["etag"] for item in result["data"]["objects"]] == [item["etag"] for item in own["data"]]


def test_a_backfill_is_recorded_and_tagged_and_moves_no_alias(platform: PlatformClient, backfilled):
    versions = {version["tags"]["dmls.interval_start"][:10]: version for version in model_versions(platform)}
    assert set(versions) == {*PAST, NEWEST}
    assert {day: version["tags"]["dmls.backfill"] for day, version in versions.items()} == {
        **dict.fromkeys(PAST, "true"),
        NEWEST: "false",
    }
    champion = platform.champion(MODEL)
    assert champion["version"] == versions[NEWEST]["version"]
    assert champion["tags"]["dmls.interval_end"] == "2026-02-02T00:00:00+00:00"
    path = f"/api/2.0/mlflow/registered-models/get?name={MODEL}"
    with urllib.request.urlopen(platform.settings["mlflow_uri"] + path, timeout=30) as answer:
        aliases = json.loads(answer.read())["registered_model"]["aliases"]
    assert [alias["alias"] for alias in aliases] == ["champion"]
    for run in backfilled:
        states = {t["task_id"]: t["state"] for t in platform.tasks(TEAM, JOB, run["dag_run_id"])}
        assert (states["approve"], states["deploy"]) == ("success", "skipped")
    status = platform.status(TEAM, JOB)
    assert status["state"] == "deployed"
    assert status["run"] == champion["tags"]["dmls.run_key"]


def test_a_run_by_hand_for_an_earlier_date_is_whole_and_replaces_no_later_champion(
    platform: PlatformClient, backfilled
):
    asked = {"logical_date": "2026-01-20T12:00:00Z"}
    run = platform.airflow("POST", f"/dags/{DAG}/dagRuns", asked)["dag_run_id"]
    wait_ended(platform, "manual", 1)

    states = {t["task_id"]: t["state"] for t in platform.tasks(TEAM, JOB, run)}
    assert (states["register"], states["approve"], states["deploy"]) == ("success", "success", "skipped")
    assert platform.champion(MODEL)["tags"]["dmls.interval_end"] == "2026-02-02T00:00:00+00:00"
    message = platform.status(TEAM, JOB)["message"]
    assert "the champion was trained on later data" in message


def test_clearing_an_old_run_repeats_it_with_its_own_spec(platform: PlatformClient, backfilled):
    old = min(backfilled, key=lambda run: run["logical_date"])
    before = runs_by_id(platform)[old["dag_run_id"]]
    platform.drop(TEAM, JOB, SPEC.format(trees=15) + "[tags]\nversion = 'two'\n", None)
    platform.wait_status(TEAM, JOB, "running", "failed", final=())

    path = f"/dags/{DAG}/dagRuns/{quote(old['dag_run_id'])}"
    platform.airflow("POST", f"{path}/clear", {"dry_run": False, "only_failed": False})
    wait_ended(platform, "backfill", len(PAST))

    (again,) = [run for run in platform.runs(TEAM, JOB) if run["dag_run_id"] == old["dag_run_id"]]
    assert again["bundle_version"] == old["bundle_version"]
    path += "/taskInstances/validate/xcomEntries/inputs"
    inputs = platform.airflow("GET", f"{path}?deserialize=true")["value"]
    assert inputs["run_key"] == before["run_key"]
