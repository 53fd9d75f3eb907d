"""A scheduled job over weekly partitions: its own run, and backfills of earlier weeks."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.e2e import data
from tests.services.demo_platform import Demo
from tests.services.platform_client import PATIENCE, PlatformClient

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(1800)

TEAM, JOB = "weather", "weekly"
DAG = f"dmls.{TEAM}.{JOB}"
MODEL = f"{TEAM}.{JOB}"
ROWS = 60
PAST = ("2026-01-12", "2026-01-19")
NEWEST = "2026-01-26"
ENDS = {"2026-01-12": "2026-01-19", "2026-01-19": "2026-01-26"}

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
    versions = json.loads(platform.mlflow(path))["model_versions"]
    return [version | {"tags": {t["key"]: t["value"] for t in version["tags"]}} for version in versions]


def wait_ended(platform: PlatformClient, run_type: str, count: int, timeout: float = PATIENCE) -> list[Any]:
    """Wait until so many runs of a type have ended well."""
    end = time.monotonic() + timeout
    while True:
        runs = [run for run in platform.runs(TEAM, JOB) if run["run_type"] == run_type]
        assert all(run["state"] != "failed" for run in runs), runs
        if len([run for run in runs if run["state"] == "success"]) == count:
            return runs
        assert time.monotonic() < end, runs
        time.sleep(1)


def wait_deferred(platform: PlatformClient, day: str, timeout: float = PATIENCE) -> None:
    """Wait until the first task of a day's run has left its worker."""
    end = time.monotonic() + timeout
    while True:
        (run,) = [run for run in platform.runs(TEAM, JOB) if (run["logical_date"] or "")[:10] == day]
        states = {t["task_id"]: t["state"] for t in platform.tasks(TEAM, JOB, run["dag_run_id"])}
        if states.get("validate") == "deferred":
            return
        assert time.monotonic() < end, states
        time.sleep(1)


def drop_ahead(platform: PlatformClient) -> None:
    """Drop the job with all of its weeks but the last of the past ones."""
    for number, day in enumerate((*PAST, NEWEST)):
        if day != PAST[-1]:
            platform.put(f"incoming/{TEAM}/{JOB}/data/dt={day}/part-0.csv", week(number))
    platform.drop(TEAM, JOB, SPEC.format(trees=10), None)


@pytest.fixture(scope="module")
def backfilled(platform: PlatformClient) -> list[dict[str, Any]]:
    """The runs of a backfill over two past weeks, begun while the newest week's model was served.

    The later of them arrives when its run waits for it.
    """
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
    platform.put(f"incoming/{TEAM}/{JOB}/data/dt={PAST[-1]}/part-0.csv", week(PAST.index(PAST[-1])))
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
    aliases = json.loads(platform.mlflow(path))["registered_model"]["aliases"]
    assert [alias["alias"] for alias in aliases] == ["champion"]
    for run in backfilled:
        states = {t["task_id"]: t["state"] for t in platform.tasks(TEAM, JOB, run["dag_run_id"])}
        assert (states["approve"], states["stage"]) == ("success", "skipped")
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
    assert (states["register"], states["approve"], states["stage"]) == ("success", "success", "skipped")
    assert platform.champion(MODEL)["tags"]["dmls.interval_end"] == "2026-02-02T00:00:00+00:00"
    message = platform.status(TEAM, JOB)["message"]
    assert "the champion was trained on later data" in message


def begun(platform: PlatformClient, *, close: bool = True) -> dict[str, str]:
    """Return when the first task of each day's backfill run has begun, once all have ended.

    ``close`` lets the next backfill begin at once; the runs of this one cannot be cleared after that.
    """
    found = {}
    ended = wait_ended(platform, "backfill", len(PAST))
    # Airflow accepts no other backfill before it has closed this one, which it does every 30 s.
    (newest,) = platform.airflow("GET", f"/backfills?dag_id={DAG}&order_by=-id&limit=1")["backfills"]
    if close and not newest["completed_at"]:
        code, answer = platform._call("PUT", f"/api/v2/backfills/{newest['id']}/cancel")
        assert code in (200, 409), answer  # 409: Airflow has closed it meanwhile
    for run in ended:
        tasks = {task["task_id"]: task for task in platform.tasks(TEAM, JOB, run["dag_run_id"])}
        found[run["logical_date"][:10]] = tasks["validate"]["start_date"]
    return found


def repeated(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the days whose runs were repeated, the first one to begin first."""
    return sorted((day for day in after if after[day] != before[day]), key=lambda day: after[day])


@pytest.mark.nightly("`dmls` adds nothing to Airflow's own command")
def test_the_command_repeats_what_it_is_told_to_and_in_that_order(
    demo: Demo, platform: PlatformClient, backfilled
):
    create = ["backfill", "create", "--dag-id", DAG, "--from-date", PAST[0], "--to-date", PAST[1]]
    listed = demo.airflow(*create, "--dry-run", "--reprocess-behavior", "completed", "--run-backwards")
    listed = listed.partition("Runs to be attempted")[2]
    assert listed.index(PAST[1]) < listed.index(PAST[0])
    before = begun(platform)

    # completed, backwards: all of the range, the latest first.
    demo.airflow(*create, "--reprocess-behavior", "completed", "--run-backwards", "--max-active-runs", "1")
    assert repeated(before, begun(platform)) == [PAST[1], PAST[0]]
    assert platform.champion(MODEL)["tags"]["dmls.interval_end"] == "2026-02-02T00:00:00+00:00"


def pick(page: Page, day: str) -> None:
    """Give the dialog the next of its two moments: midnight of a day."""
    page.get_by_role("dialog").get_by_text("Select date and time").first.click()
    # The first moment's own fields may still be there.
    page.get_by_placeholder("YYYY/MM/DD").last.fill(day.replace("-", "/"))
    page.get_by_placeholder("HH:mm").last.fill("00:00")
    page.get_by_placeholder("HH:mm").last.press("Enter")
    page.get_by_role("dialog").get_by_text("Date Range").click()


@pytest.mark.nightly("`dmls` adds nothing to Airflow's own dialog")
def test_the_dialog_in_airflow_s_pages_starts_the_same_run_as_the_command(
    browser: Browser, platform: PlatformClient, backfilled
):
    def received() -> list[list[Any]]:
        names = ("dag_run_id", "run_type", "data_interval_start", "bundle_version", "triggered_by", "conf")
        runs = wait_ended(platform, "backfill", len(PAST))
        return sorted([run[name] or None for name in names] for run in runs)

    before, commanded = begun(platform), received()
    page = browser.new_context(viewport={"width": 1000, "height": 900}, timezone_id="UTC").new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{platform.settings['airflow_url'].rstrip('/')}/dags/{DAG}")
    page.locator("input[name=username]").fill(platform.settings["airflow_username"])
    page.locator("input[name=password]").fill(platform.settings["airflow_password"])
    page.locator("button[type=submit]").click()
    page.get_by_role("button", name="Trigger").first.click()
    dialog = page.get_by_role("dialog").first
    dialog.get_by_text("Backfill", exact=True).click()
    pick(page, PAST[0])
    pick(page, PAST[0])
    dialog.get_by_text("All Runs").click()
    dialog.get_by_text("1 run will be triggered").wait_for()
    dialog.get_by_role("button", name="Run Backfill").click()
    dialog.wait_for(state="hidden")
    page.close()

    assert repeated(before, begun(platform)) == [PAST[0]]
    assert received() == commanded
    created = platform.airflow("GET", f"/backfills?dag_id={DAG}&order_by=-id&limit=2")["backfills"]
    assert [found["reprocess_behavior"] for found in created] == ["completed", "completed"]


def test_a_backfilled_model_is_compared_with_the_champion(platform: PlatformClient, backfilled):
    champion = platform.champion(MODEL)
    recorded = runs_by_id(platform)
    for run in backfilled:
        folder = f"runs/{TEAM}/{JOB}/{recorded[run['dag_run_id']]['run_key']}/"
        found = json.loads(platform.get(folder + "result.json") or b"{}")["comparison"]
        assert found["champion_run_key"] == champion["tags"]["dmls.run_key"]
        assert (found["comparable"], found["fresh"]) == (
            True,
            "none",
        )  # the champion has learnt from these weeks
        assert found["difference"] == found["challenger_score"] - found["champion_score"]
        decision = json.loads(platform.get(folder + "decision.json") or b"{}")
        assert (decision["decision"], decision["by"]) == ("keep", "rule")
        # The run by hand was of a backfill's week and spec, and so of its run key.
        received = decision["reason"]
        assert "made by a backfill" in received or "the champion was trained on later data" in received
        page = (platform.get(folder + "report.html") or b"").decode()
        assert "Champion and challenger" in page
    tags = [
        version["tags"] for version in model_versions(platform) if version["tags"]["dmls.backfill"] == "true"
    ]
    assert {tag["dmls.decision"] for tag in tags} == {"keep"}
    assert {tag["dmls.compared_with"] for tag in tags} == {champion["version"]}


@pytest.mark.nightly("the API changes a run, too: `e2e/test_web.py`")
def test_a_run_is_changed_from_the_trigger_form_and_the_job_is_not(platform: PlatformClient, backfilled):
    record = platform.get(f"registry/jobs/{TEAM}/{JOB}.json")
    changes = {
        "n_trials": 2,
        "seed": 9,
        "data": {"window": 1},
        "hyperparameters": {"n_estimators": {"value": 7}},
    }
    asked = {"logical_date": "2026-01-27T12:00:00Z", "conf": {"run": changes}}
    run = platform.airflow("POST", f"/dags/{DAG}/dagRuns", asked)["dag_run_id"]
    wait_ended(platform, "manual", 2)

    own = runs_by_id(platform)[run]
    folder = f"runs/{TEAM}/{JOB}/{own['run_key']}/"
    result = json.loads(platform.get(folder + "result.json") or b"{}")
    assert own["changes"] == changes
    assert (result["best_params"]["n_estimators"], result["seed"], result["data"]["rows"]) == (7, 9, ROWS)
    assert json.loads(platform.get(folder + "spec.json") or b"{}")["data"]["window"] == 1
    assert platform.get(f"registry/jobs/{TEAM}/{JOB}.json") == record
    (version,) = [
        found for found in model_versions(platform) if found["tags"]["dmls.run_key"] == own["run_key"]
    ]
    assert json.loads(version["tags"]["dmls.changes"]) == changes


def test_a_mistake_in_the_trigger_form_is_answered_like_one_in_a_spec(platform: PlatformClient, backfilled):
    with pytest.raises(AssertionError, match="was unexpected"):
        platform.airflow("POST", f"/dags/{DAG}/dagRuns", {"logical_date": None, "conf": {"run": {"sed": 1}}})

    asked = {"logical_date": None, "conf": {"run": {"seed": -1}}}
    run = platform.airflow("POST", f"/dags/{DAG}/dagRuns", asked)["dag_run_id"]
    # What an earlier run left there may still be read.
    status = platform.wait_status(TEAM, JOB, "failed", final=())

    assert [(error["key"], error["file"]) for error in status["errors"]] == [
        ("search.seed", "the run's configuration")
    ]
    end = time.monotonic() + PATIENCE
    while {found["dag_run_id"]: found["state"] for found in platform.runs(TEAM, JOB)}[run] != "failed":
        assert time.monotonic() < end, status
        time.sleep(1)
    states = {t["task_id"]: t["state"] for t in platform.tasks(TEAM, JOB, run)}
    assert states["validate"] == "failed"
    platform.airflow("DELETE", f"/dags/{DAG}/dagRuns/{quote(run)}")


@pytest.mark.nightly("trains once more; unit tests prove `run.deploy`")
def test_a_failed_run_is_repeated_alone_and_deployed_if_that_is_asked_for(
    demo: Demo, platform: PlatformClient, backfilled
):
    before = begun(platform)
    failed = next(run for run in backfilled if run["logical_date"][:10] == PAST[1])["dag_run_id"]
    path = f"/dags/{DAG}/dagRuns/{quote(failed)}"
    platform.airflow("PATCH", f"{path}?update_mask=state", {"state": "failed"})
    create = ["backfill", "create", "--dag-id", DAG, "--from-date", PAST[0], "--to-date", PAST[-1]]
    demo.airflow(*create, "--reprocess-behavior", "failed", "--dag-run-conf", '{"run": {"deploy": true}}')

    assert repeated(before, begun(platform, close=False)) == [PAST[1]]
    champion = platform.champion(MODEL)
    assert champion["tags"]["dmls.interval_end"][:10] == ENDS[PAST[1]]
    own = runs_by_id(platform)[failed]
    assert champion["tags"]["dmls.run_key"] == own["run_key"]


@pytest.mark.nightly("trains once more; unit tests prove what a cleared run reads")
def test_clearing_an_old_run_repeats_it_with_its_own_spec(platform: PlatformClient, backfilled):
    old = next(run for run in backfilled if run["logical_date"][:10] == PAST[1])
    before = runs_by_id(platform)[old["dag_run_id"]]
    folder = f"runs/{TEAM}/{JOB}/{before['run_key']}/"
    result = platform.get(folder + "result.json")
    # Its own run reads the poisoned files, too, and is to fail in the search.
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
    # The same spec on the same data is the same run, whatever the job's spec is by now.
    assert platform.get(folder + "result.json") == result
    assert json.loads(result or b"{}")["best_params"]["n_estimators"] == 10
