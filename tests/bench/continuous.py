"""A weekly job over a stream that drifts in its eighth of twelve weeks, on a real platform; what was decided.

Weeks 1 to 6 lie there when the spec is dropped, and are backfilled over Airflow's REST API. Each later week
is lived through: its file arrives, the monitor looks, and the week's run trains. Time is not waited for: the
week's run is started with the date at which the schedule would have started it. If the monitor has started
one for drift, that is the week's run: it trains on the same data.

Ends with an error if drift was seen before week 8 or not by week 9, if a backfill moved the champion, or if
no model that was trained after the drift was deployed.

Run it with ``python tests/bench/continuous.py``; ``--home`` uses a platform that runs (``dmls up``) instead
of one of its own. ``--no-drift 20`` instead looks, without a platform, for false alarms in as many streams
that do not drift.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Collection
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.bench.stream import WEEKS, false_alarms, week
from tests.services.demo_platform import NO_ENGINE, dmls
from tests.services.platform_client import PlatformClient

TEAM = "bench"
PATIENCE = 900
BACKFILLED = 6
LIVE = {"manual", "operator_triggered"}
"""Types of the runs that the story starts, and of those that the monitor starts."""

MONDAY = date(2026, 1, 5)

SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
target = "y"
[n_estimators]
value = 30
[max_depth]
value = 6
[data]
path = "data/{date}.csv"
window = 2
[schedule]
cron = "0 0 * * 1"
jitter = 0
[deploy]
mode = "auto"
[drift]
action = "retrain"
"""


def day(number: int) -> date:
    """Return the first day of a week, from 1."""
    return MONDAY + timedelta(weeks=number - 1)


class Story:
    """One job on a platform, week by week."""

    def __init__(self, platform: PlatformClient, job: str, drifts_at: int) -> None:
        self.platform, self.job, self.drifts_at = platform, job, drifts_at
        self.dag = f"dmls.{TEAM}.{job}"
        self.model = f"{TEAM}.{job}"

    def arrive(self, number: int) -> None:
        """Put a week's file."""
        rows = week(0, number, self.drifts_at)
        self.platform.put(f"incoming/{TEAM}/{self.job}/data/{day(number)}.csv", rows.write_csv())

    def champion(self) -> str:
        """Return the last week that the champion was trained on."""
        tags = self.platform.champion(self.model)["tags"]
        end = date.fromisoformat(tags["dmls.interval_end"][:10])
        return f"week {(end - MONDAY).days // 7}"

    def begin(self) -> list[Row]:
        """Drop the spec with the first weeks, and backfill them."""
        for number in range(1, BACKFILLED + 1):
            self.arrive(number)
        self.platform.drop(TEAM, self.job, SPEC, None)
        self.platform.wait_status(TEAM, self.job, "deployed", timeout=PATIENCE)
        rows = [self._row("admission", self.platform.runs(TEAM, self.job)[0], "")]
        champion = self.platform.champion(self.model)["version"]
        self.platform.airflow(
            "POST",
            "/backfills",
            {
                "dag_id": self.dag,
                "from_date": f"{day(1)}T00:00:00Z",
                "to_date": f"{day(BACKFILLED)}T00:00:00Z",
                "reprocess_behavior": "none",
                "max_active_runs": 2,
            },
        )
        done = self._wait({"backfill"}, BACKFILLED)
        assert self.platform.champion(self.model)["version"] == champion, "a backfill moved the champion"
        done.sort(key=lambda found: found["logical_date"])
        return rows + [self._row(f"backfill of week {n}", r, "") for n, r in enumerate(done, 1)]

    def live(self, number: int) -> Row:
        """Live through a week: its file arrives, the monitor looks, the week's run trains."""
        self.arrive(number)
        self._look()
        key = f"monitor/{TEAM}/{self.job}/latest-data/drift.json"
        found = json.loads(self.platform.get(key) or b"{}")
        assert found["source"] == f"data/{day(number)}.csv", found
        if not [r for r in self._runs(LIVE) if r["state"] not in ("success", "failed")]:
            asked = {"logical_date": f"{day(number + 1)}T00:00:00Z"}
            self.platform.airflow("POST", f"/dags/{self.dag}/dagRuns", asked)
        newest = max(self._wait(LIVE, number - BACKFILLED), key=lambda r: r["run_after"])
        return self._row(f"week {number}", newest, found["message"])

    def _look(self) -> None:
        path = "/dags/dmls.monitor/dagRuns"
        asked = self.platform.airflow("POST", path, {"logical_date": None})["dag_run_id"]
        end = time.monotonic() + PATIENCE
        while (state := self.platform.airflow("GET", f"{path}/{quote(asked)}")["state"]) != "success":
            assert state != "failed", f"the monitor failed: run {asked}"
            assert time.monotonic() < end, "the monitor takes too long"
            time.sleep(0.5)

    def _runs(self, kinds: Collection[str]) -> list[dict[str, Any]]:
        path = f"/dags/{self.dag}/dagRuns?limit=100"
        return [r for r in self.platform.airflow("GET", path)["dag_runs"] if r["run_type"] in kinds]

    def _wait(self, kinds: Collection[str], count: int) -> list[dict[str, Any]]:
        end = time.monotonic() + PATIENCE
        while True:
            found = self._runs(kinds)
            assert not [r for r in found if r["state"] == "failed"], found
            if len(found) >= count and all(r["state"] == "success" for r in found):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.5)

    def _row(self, name: str, found: dict[str, Any], drift: str) -> Row:
        """Tell what a run was decided on."""
        run_id = found["dag_run_id"]
        tasks = {t["task_id"]: t["state"] for t in self.platform.tasks(TEAM, self.job, run_id)}
        path = f"/dags/{self.dag}/dagRuns/{quote(run_id)}/taskInstances/validate/xcomEntries/inputs"
        run_key = self.platform.airflow("GET", f"{path}?deserialize=true")["value"]["run_key"]
        folder = f"runs/{TEAM}/{self.job}/{run_key}/"
        inputs = json.loads(self.platform.get(folder + "run.json") or b"{}")
        result = json.loads(self.platform.get(folder + "result.json") or b"{}")
        compared = result.get("comparison") or {}
        interval = compared.get("interval")
        return {
            "run": name,
            "started by": "drift" if run_id.startswith("drift__") else found["run_type"],
            "trained on": f"{inputs['since'][:10]} to {inputs['interval'][1][:10]}",
            "drift": drift,
            "score": result["score"],
            "champion's": _number(compared.get("champion_score")),
            "challenger's": _number(compared.get("challenger_score")),
            "better by": f"{interval[0]:+.3f} to {interval[1]:+.3f}" if interval else "",
            "P(better)": _number(compared.get("probability")),
            "decision": "deployed" if tasks["promote"] == "success" else "not deployed",
            "champion now": self.champion(),
        }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def check(rows: list[Row], drifts_at: int) -> None:
    """Check the story: drift is seen in time, and not before; its model is deployed."""
    live = rows[-(WEEKS - BACKFILLED) :]
    seen = [number for number, row in enumerate(live, BACKFILLED + 1) if "columns drifted" in row["drift"]]
    assert seen, "the drift was not seen"
    assert drifts_at <= seen[0] <= drifts_at + 1, f"drift was seen in week {seen[0]}"
    assert any(
        row["decision"] == "deployed" and row["started by"] == "drift" and row["run"] == f"week {number}"
        for number, row in enumerate(live, BACKFILLED + 1)
        if number in (drifts_at, drifts_at + 1)
    ), "no model that was trained because of the drift was deployed"


def story(platform: PlatformClient, job: str, drifts_at: int) -> list[Row]:
    """Live through twelve weeks, and check them."""
    reported = Story(platform, job, drifts_at)
    rows = reported.begin()
    for number in range(BACKFILLED + 1, WEEKS + 1):
        rows.append(reported.live(number))
        print(f"  {rows[-1]['run']}: {rows[-1]['drift']}; {rows[-1]['decision']}", flush=True)
    return rows


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Live through the weeks on a platform; or count false alarms."""
    if arguments.no_drift:
        return false_alarms(range(arguments.no_drift))
    job = f"weekly-{int(time.time())}"
    if arguments.home:
        rows = story(PlatformClient(Path(arguments.home) / "platform.json"), job, arguments.drifts_at)
    else:
        with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
            home = Path(folder) / ".dmls"
            up = dmls(home, "up", timeout=420, DOCKER_HOST=NO_ENGINE)
            assert up.returncode == 0, up.stderr
            try:
                rows = story(PlatformClient(home / "platform.json"), job, arguments.drifts_at)
            finally:
                dmls(home, "down", timeout=120)
    check(rows, arguments.drifts_at)
    return rows


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--home", "", "state folder of a running platform"),
        ("--drifts-at", 8, "the week in which the stream drifts"),
        ("--no-drift", 0, "number of streams without drift to look at instead"),
    )
