"""The commands that read a running platform, on the job that the demo left."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from typing import Any

import pytest

from dmls_core.cli.demo import write_csv
from tests.services.demo_platform import Demo
from tests.services.platform_client import PlatformClient


def test_jobs_and_show(demo: Demo, platform: PlatformClient):
    jobs = json.loads(demo.dmls("jobs", "--json").stdout)["jobs"]
    (job,) = (job for job in jobs if job["job"] == "demo/iris")
    assert (job["state"], job["version"]) == ("deployed", 1)

    shown = json.loads(demo.dmls("show", "demo/iris", "--json").stdout)
    assert shown["result"]["score"] >= 0.9
    assert shown["runner"]["exit_code"] == 0
    assert shown["record"]["run_key"] == shown["status"]["run_key"] == job["run_key"]
    assert "holdout accuracy" in demo.dmls("show", "demo/iris").stdout


def test_logs(demo: Demo, platform: PlatformClient):
    every = demo.dmls("logs", "demo/iris")
    assert every.returncode == 0, every.stderr
    places = [every.stdout.index(f" {task}") for task in ("validate:", "plan:", "search 0:", "promote:")]
    assert places == sorted(places)

    one = demo.dmls("logs", "demo/iris", "--task", "search")
    assert "5 of 5" in one.stdout
    assert "promote:" not in one.stdout
    assert demo.dmls("logs", "demo/iris", "--task", "nothing").returncode == 1
    assert demo.dmls("logs", "demo/never").returncode == 1


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_predict_in_the_users_columns_and_labels(demo: Demo, platform: PlatformClient, tmp_path, protocol):
    rows = write_csv(tmp_path / "iris.csv")
    done = demo.dmls("predict", "demo/iris", str(tmp_path / "iris.csv"), "--protocol", protocol)
    assert done.returncode == 0, done.stderr
    answers = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [answer["species"] for answer in answers] == [row[-1] for row in rows]
    right = sum(answer["prediction"] == answer["species"] for answer in answers)
    assert right >= 140
    assert {float(a["probability_setosa"]) <= 1 for a in answers} == {True}


@pytest.mark.nightly(
    "the parts are proven by `integration/test_database_tables.py` and unit tests of scoring"
)
def test_a_table_of_a_database_is_scored(demo: Demo, platform: PlatformClient, tmp_path):
    """Through an Airflow connection; the rows keep their keys, and an unknown table is named."""
    rows = write_csv(tmp_path / "iris.csv")
    with sqlite3.connect(tmp_path / "warehouse.db") as database:
        database.execute("CREATE TABLE flowers (id, sepal_length, sepal_width, petal_length, petal_width)")
        numbered = [(at, *row[:4]) for at, row in enumerate(rows)]
        database.executemany("INSERT INTO flowers VALUES (?, ?, ?, ?, ?)", numbered)
    add = ["connections", "add", "warehouse", "--conn-type", "sqlite"]
    demo.airflow(*add, "--conn-host", str(tmp_path / "warehouse.db"))

    def score(table: str) -> dict[str, Any]:
        file = tmp_path / f"{table}.toml"
        file.write_text(f'connection = "warehouse"\ntable = "{table}"\n')
        done = demo.dmls("score", "demo/iris", str(file), "--json", timeout=900)
        (record,) = json.loads(done.stdout)["files"]
        return record

    record = score("flowers")
    assert (record["state"], record["rows"], record["version"]) == ("scored", len(rows), 1)
    answers = list(csv.DictReader(io.StringIO(platform.get(record["result"]).decode())))
    assert [int(answer["id"]) for answer in answers] == list(range(len(rows)))
    right = sum(answer["prediction"] == row[-1] for answer, row in zip(answers, rows, strict=True))
    assert right >= 140
    record = score("nothing")
    assert record["state"] == "failed"
    assert "no such table" in record["message"]


def test_predict_says_what_is_wrong_with_the_data(demo: Demo, platform: PlatformClient, tmp_path):
    table = tmp_path / "short.csv"
    table.write_text("sepal_length,sepal_width\n1,2\n")
    done = demo.dmls("predict", "demo/iris", str(table), "--out", str(tmp_path / "out.csv"))
    assert done.returncode == 1
    assert "petal_length" in done.stderr
    assert not (tmp_path / "out.csv").exists()
    assert demo.dmls("predict", "demo/never", str(table)).returncode == 1


def test_a_job_that_does_not_wait_for_approval_is_not_deployed(demo: Demo, platform: PlatformClient):
    again = demo.dmls("deploy", "demo/iris")
    assert again.returncode == 1
    assert "demo/iris does not wait for approval" in again.stderr


def test_the_platform_is_planned_from_its_runs(demo: Demo, platform: PlatformClient):
    done = demo.dmls("plan", "--platform", "--jobs", "10", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    cpu = plan["pools"][0]
    assert plan["runs"] >= 1
    assert cpu["slots"] >= 1
    assert cpu["runs_per_day"] == pytest.approx(10 * plan["runs"] / plan["days"], rel=0.01)
    assert plan["peak_bytes"] > 50 << 20
