"""A newcomer's way through the page, in a real Chromium against the real platform."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, Route, expect

from dmls_core.web.services.snippets import KEY
from tests.e2e.data import SMALL_IRIS, iris, write_compressed_tables
from tests.e2e.test_web import viewer_token
from tests.services.demo_platform import Demo
from tests.services.newcomer import PATIENCE, Newcomer, arrive
from tests.services.platform_client import PlatformClient
from tests.unit.data.formats.test_excel import workbook

SETOSA = {"sepal_length": "5.0", "sepal_width": "3.4", "petal_length": "1.5", "petal_width": "0.2"}
PARQUET = "application/vnd.apache.parquet"
AXE = Axe()
STEPS = (
    "login",
    "dragging",
    "columns",
    "submitted",
    "training",
    "trained",
    "report",
    "deployed",
    "try",
)


@pytest.fixture
def looked() -> list[str]:
    """The steps that were looked at."""
    return []


@pytest.fixture
def newcomer(browser: Browser, platform: PlatformClient, looked: list[str]) -> Iterator[Newcomer]:
    def look(page: Page, step: str) -> None:
        looked.append(step)
        if page.url.startswith(newcomer.home) and step != "report":
            assert serious(page) == [], step

    expect.set_options(timeout=PATIENCE)
    newcomer = arrive(browser, platform.settings, look, accept_downloads=True)
    yield newcomer
    newcomer.page.context.close()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A CSV on the newcomer's disk."""
    file = tmp_path / "iris.csv"
    file.write_text(iris())
    return file


def make_key(newcomer: Newcomer, job: str) -> str:
    """Create an API key on the job's page in another tab of the browser."""
    page = newcomer.page.context.new_page()
    page.goto(f"{newcomer.home}/jobs/{job}/keys")
    page.get_by_label("Name").fill("a test")
    page.get_by_role("button", name="Create").click()
    key = page.locator("#key").inner_text()
    expect(page.get_by_role("button", name="Revoke a test")).to_be_visible()
    assert serious(page) == []
    page.close()
    return key


def serious(page: Page) -> list[tuple[str, Any]]:
    """Return what axe finds serious on a page."""
    found = AXE.run(page).response["violations"]
    return [
        (violation["id"], [node["target"] for node in violation["nodes"]])
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.timeout(1200)
def test_from_a_csv_to_an_answer_without_writing_a_line(
    newcomer: Newcomer, platform: PlatformClient, table: Path, looked: list[str]
):
    page = newcomer.page
    newcomer.log_in()
    newcomer.drag(table, team="web", name="iris")
    assert "150 rows, 5 columns" in page.locator("#schema-summary").inner_text()
    assert "species" in page.locator("#schema-summary").inner_text()
    newcomer.choose_model("random-forest-classifier")
    newcomer.set_range("n_estimators", 10, 30)
    page.get_by_label("Trials").fill("2")
    expect(page.locator("#toml")).to_have_value(lines("[n_estimators]", "min = 10", "max = 30"))

    said = newcomer.submit()
    assert "accepted" in said.lower(), said
    assert platform.get("incoming/web/iris/iris.csv") == table.read_bytes()
    assert platform.get("incoming/web/iris/spec.toml").decode() == page.locator("#toml").input_value()

    newcomer.watch()
    assert "web/iris" in newcomer.read_report()
    newcomer.deploy()
    assert newcomer.ask(SETOSA) == "setosa"
    curl = page.get_by_role("region", name="The same with curl").inner_text()
    environment = os.environ | {KEY: make_key(newcomer, "web/iris")}
    answer = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=120, env=environment)
    assert answer.returncode == 0, answer.stderr
    assert "setosa" in answer.stdout

    scored = Path(newcomer.score(table).path()).read_text()
    rows = list(csv.DictReader(scored.splitlines()))
    assert len(rows) == 150
    assert sum(row["prediction"] == row["species"] for row in rows) > 120

    assert looked == list(STEPS)
    assert newcomer.errors == []


@pytest.mark.nightly("trains twice; `e2e/test_web.py` runs again and rolls back over the API")
@pytest.mark.timeout(1200)
def test_a_job_is_run_again_and_rolled_back_on_its_page(
    newcomer: Newcomer, platform: PlatformClient, looked: list[str]
):
    page = newcomer.page
    platform.drop("web", "again", SMALL_IRIS, iris())
    platform.wait_status("web", "again", "awaiting approval")
    newcomer.log_in()
    page.goto(f"{newcomer.home}/jobs/web/again")
    newcomer.deploy()
    newcomer.run_again(11, "n_estimators", 5, 15)
    (changes,) = [run["conf"]["run"] for run in platform.runs("web", "again") if run["conf"]]
    ranges = {"random-forest-classifier": {"n_estimators": {"min": 5, "max": 15}}}
    assert changes == {"seed": 11, "hyperparameters": ranges}
    newcomer.deploy(version=2)
    newcomer.roll_back(1)
    page.get_by_role("link", name="Runs", exact=True).click()
    for run in page.get_by_role("checkbox").all():
        run.check()
    page.get_by_role("button", name="Compare selected runs").click()
    page.get_by_role("heading", name="Which one is better?").wait_for()
    assert serious(page) == []
    expect(page.get_by_role("columnheader", name="Version 1,").first).to_contain_text("seed 11")
    champion = platform.champion("web.again")
    assert champion["tags"]["dmls.triton_version"] == "1"
    assert "admin on the DMLS page" in json.dumps(champion["tags"])
    status = platform.status("web", "again")
    assert status["message"].startswith("version 1: accuracy 0.")
    assert "instead of version 2: rolled back by admin" in status["message"]
    assert (status["served"]["version"], status["served"]["previous"]) == (1, 2)
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("row").filter(has_text="rolled back")).to_contain_text("admin")
    assert looked == ["login", "deployed", "again", "deployed", "rolling back", "rolled back"]
    assert newcomer.errors == []


def test_errors_are_shown_where_they_are_and_nothing_is_sent(
    newcomer: Newcomer, platform: PlatformClient, table: Path
):
    page = newcomer.page
    newcomer.log_in()
    newcomer.choose(table, team="web", name="typing")
    newcomer.choose_model("random-forest-classifier")
    expect(page.locator("#verdict")).to_have_text("valid")
    good = page.locator("#toml").input_value()
    page.locator("#toml").fill(good.replace("[n_estimators]", "[n_estimater]"))
    expect(page.locator("#problems")).to_contain_text("did you mean n_estimators?")
    expect(page.locator("#problems")).to_contain_text(f"line {line_of(good, '[n_estimators]')}")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    page.locator("#toml").fill(good.replace('"species"', '"specis"'))
    expect(page.locator("#problems")).to_contain_text("did you mean 'species'?")

    page.locator("#toml").fill(good.replace("max = 500", "max = 90"))
    expect(page.locator("#verdict")).to_have_text("valid")
    row = page.get_by_role("group", name="n_estimators")
    expect(row.get_by_label("to", exact=True)).to_have_value("90")
    page.get_by_label("Job", exact=True).fill("Not a name")
    expect(page.locator("#names-note")).to_contain_text("Lowercase letters")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    assert platform.keys("incoming/web/typing/") == []
    assert newcomer.errors == []


def test_edit_opens_the_form_with_the_spec_and_checks_schedule_and_drift(
    newcomer: Newcomer, platform: PlatformClient
):
    page = newcomer.page
    newcomer.log_in()
    spec = platform.get("incoming/demo/iris/spec.toml").decode()
    reading: list[Route] = []
    page.route("**/sniff?*", lambda route: reading.append(route))
    page.goto(f"{newcomer.home}/jobs/demo/iris")
    with page.expect_request("**/sniff?*"):
        page.get_by_role("link", name="Edit").click()
    expect(page.locator("#toml")).to_have_value(spec)
    expect(page.get_by_label("Job", exact=True)).to_have_value("iris")

    # What is changed while the data is being read is kept.
    page.get_by_label("Run", exact=True).select_option("cron")
    reading[0].continue_()
    page.unroute("**/sniff?*")
    expect(page.locator("#columns tr")).to_have_count(5)
    page.get_by_label("Cron expression").fill("0 25 * * *")
    expect(page.locator("#schedule-note")).to_contain_text("has '25' as its hour, not a value from 0 to 23")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    page.get_by_label("Cron expression").fill("30 6 * * 1")
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    expect(page.get_by_role("heading", name="Next runs (Asia/Tokyo)")).to_be_visible()
    expect(page.locator(".next-runs li")).to_have_count(5)
    expect(page.locator(".next-runs li").first).to_have_text(re.compile(r"^Mon, .*, 06:30$"))
    page.get_by_label("Drift", exact=True).select_option("retrain")
    page.get_by_label("Late labels").fill("labels/{date}.csv")
    expect(page.locator("#toml")).to_have_value(lines('labels = "labels/{date}.csv"'))
    page.get_by_label("Run", exact=True).select_option("data")
    expect(page.locator("#schedule-note")).to_contain_text("needs a path with {date}")
    page.get_by_label("Run", exact=True).select_option("")
    expect(page.locator("#schedule-note")).to_have_text("")
    # Trained again on the same data, the model would be the same.
    expect(page.locator("#problems")).to_contain_text("drift.action")
    page.get_by_label("Drift", exact=True).select_option("report")
    expect(page.locator("#verdict")).to_have_text("valid")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()
    assert serious(page) == []
    assert platform.get("incoming/demo/iris/spec.toml").decode() == spec
    assert newcomer.errors == []


def test_a_file_that_is_no_table_is_refused_before_it_is_sent(newcomer: Newcomer, tmp_path: Path):
    page = newcomer.page
    newcomer.log_in()
    workbook = tmp_path / "sales.csv"
    workbook.write_bytes(b"PK\x03\x04" + bytes(100))

    page.set_input_files("#file", workbook)

    expect(page.locator("#data-note")).to_contain_text("a zip archive or an Excel workbook")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()


def test_compressed_files_are_profiled_all_over(newcomer: Newcomer, tmp_path: Path):
    page = newcomer.page
    newcomer.log_in()
    write_compressed_tables(tmp_path)

    for file in ("a.csv.gz", "two.csv.gz", "a.csv.zst", "a.zip"):
        page.set_input_files("#file", tmp_path / file)
        expect(page.locator("#data-note strong")).to_have_text(file)
        expect(page.locator("#schema-summary")).to_contain_text("rows from all over lines 1 to 300,001")
        half = page.locator("#columns tr", has_text=re.compile("^half"))
        expect(half).to_contain_text("first, second")

    page.set_input_files("#file", tmp_path / "cut.csv.gz")
    expect(page.locator("#data-note")).to_contain_text("cannot be")
    assert newcomer.errors == []


def test_a_workbook_is_read_again_as_the_form_says(newcomer: Newcomer, tmp_path: Path):
    page = newcomer.page
    newcomer.log_in()
    header, *rows = [line.split(",") for line in iris().splitlines()]
    flowers = [header, *([*map(float, row[:-1]), row[-1]] for row in rows)]
    notes = [
        ["colour", "count"],
        *(["red" if number % 3 else "blue", number % 7 + 0.5] for number in range(40)),
    ]
    book = workbook(tmp_path / "flowers.xlsx", {"Notes": notes, "Measured": flowers})

    page.set_input_files("#file", book)
    sheet = page.get_by_label("Sheet")
    expect(sheet.locator("option")).to_have_text(["Notes", "Measured"])
    expect(sheet).to_have_value("Notes")
    expect(page.locator("#columns tr")).to_have_count(2)
    sheet.select_option("Measured")

    expect(page.locator("#data-note")).to_contain_text("was read again: 5 columns")
    expect(page.locator("#columns tr")).to_have_count(5)
    expect(page.locator("#schema-summary")).to_contain_text("species")
    expect(page.locator("#toml")).to_have_value(re.compile('^sheet = "Measured"$', re.MULTILINE))
    expect(page.locator("#verdict")).to_have_text("valid")
    assert serious(page) == []
    assert newcomer.errors == []


def test_a_viewer_asks_the_model_and_submits_nothing(demo: Demo, platform: PlatformClient):
    url = platform.settings["airflow_url"].rstrip("/") + "/dmls/api/v1"
    headers = {"Authorization": f"Bearer {viewer_token(demo)}"}
    with httpx.Client(base_url=url, headers=headers, timeout=300) as viewer:
        answer = viewer.post("/jobs/demo/iris/predict", json={"row": SETOSA | {"petal_width": "-5"}})
        partial = viewer.post("/jobs/demo/iris/predict", json={"row": {"sepal_length": "5.0", "size": 3}})
        rows = [SETOSA, SETOSA | {"petal_width": None}]
        as_csv = ",".join(SETOSA) + "\n" + ",".join(map(str, SETOSA.values())) + "\n"
        as_parquet = io.BytesIO()
        pl.DataFrame([{name: float(value) for name, value in SETOSA.items()}]).write_parquet(as_parquet)
        many = viewer.post("/predictions/demo/iris", json=rows)
        from_csv = viewer.post(
            "/predictions/demo/iris",
            content=as_csv,
            headers={"Content-Type": "text/csv", "Accept": "text/csv"},
        )
        from_parquet = viewer.post(
            "/predictions/demo/iris", content=as_parquet.getvalue(), headers={"Content-Type": PARQUET}
        )
        noted = viewer.post("/predictions/demo/iris", json=[SETOSA | {"size": 3}])
        unknown = viewer.post("/predictions/demo/iris?strict=true", json=[SETOSA | {"size": 3}])
        refused = [
            viewer.get("/drops/web/theirs"),
            viewer.post("/drops/web/theirs/uploads", params={"file": "a.csv", "size": 1}),
            viewer.put("/drops/web/theirs/spec", json={"toml": "model = 1"}),
        ]

    assert answer.json()["prediction"] == "setosa"
    assert [found["column"] for found in answer.json()["warnings"]] == ["petal_width"]
    assert partial.status_code == 422
    assert {issue["message"] for issue in partial.json()["problems"]} >= {
        "column 'petal_width' is absent",
        "the model has no column 'size'",
    }
    assert [row["prediction"] for row in many.json()] == ["setosa", "setosa"]
    assert from_csv.text.startswith("prediction,probability_setosa,")
    assert from_csv.text.splitlines()[1].startswith("setosa,")
    assert from_parquet.json()[0]["prediction"] == "setosa"
    assert (noted.json()[0]["prediction"], noted.headers["DMLS-Notes"]) == ("setosa", "ignored-column=1")
    assert (unknown.status_code, unknown.json()["detail"].count("no column 'size'")) == (422, 1)
    assert [found.status_code for found in refused] == [403] * 3
    assert platform.keys("incoming/web/theirs/") == []


def test_a_key_from_the_command_line_predicts_and_does_nothing_else(demo: Demo, platform: PlatformClient):
    made = demo.dmls("keys", "create", "demo/iris", "--name", "from a shell", "--days", "1")
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    listed = demo.dmls("keys", "list", "demo/iris")
    assert "from a shell" in listed.stdout
    assert key not in listed.stdout + made.stderr
    url = platform.settings["airflow_url"].rstrip("/")
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=300) as analyst:
        assert analyst.post("/dmls/api/v1/predictions/demo/iris", json=[SETOSA]).status_code == 200
        assert analyst.post("/dmls/api/v1/predictions/demo/other", json=[SETOSA]).status_code == 403
        for path in ("/dmls/api/v1/jobs/demo/iris", "/dmls/api/v1/jobs/demo/iris/keys", "/api/v2/dags"):
            assert analyst.get(path).status_code in (401, 403), path
        assert demo.dmls("keys", "revoke", "demo/iris", key.split("_")[1]).returncode == 0
        assert analyst.post("/dmls/api/v1/predictions/demo/iris", json=[SETOSA]).status_code == 401
    logs = [path.read_text(errors="replace") for path in (demo.home / "logs").glob("*.log")]
    assert logs
    assert not any(key.rpartition("_")[2] in log for log in logs)


ASK = """async ([url, key]) => {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const row = { sepal_length: 5, sepal_width: 3.4, petal_length: 1.5, petal_width: 0.2 };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify([row]) });
  return [answer.status, (await answer.json())[0]?.prediction];
}"""
"""What a page of a shop does to predict."""


def test_pages_of_listed_origins_predict_and_others_do_not(
    browser: Browser, demo: Demo, platform: PlatformClient, tmp_path: Path
):
    key = demo.dmls("keys", "create", "demo/iris", "--name", "a shop").stdout.strip()
    api = platform.settings["airflow_url"].rstrip("/") + "/dmls/api/v1"
    listed = demo.airflow_environment["DMLS_CORS_ORIGINS"]
    assert listed, "start the platform that you keep with DMLS_CORS_ORIGINS=http://127.0.0.1:PORT"
    port = int(listed.rpartition(":")[2])
    (tmp_path / "index.html").write_text("<!doctype html><title>Shop</title>")
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as shop, browser.new_context() as context:
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        page = context.new_page()
        page.goto(listed)
        assert page.evaluate(ASK, [f"{api}/predictions/demo/iris", key]) == [200, "setosa"]
        assert page.evaluate(ASK, [f"{api}/predictions/demo/iris", "dmls_wrong"])[0] == 401
        with pytest.raises(Error, match="Failed to fetch"):  # only predictions are open to other origins
            page.evaluate(ASK, [f"{api}/jobs/demo/iris/predict", key])
        page.goto(f"http://localhost:{port}")  # the same server, another origin
        with pytest.raises(Error, match="Failed to fetch"):
            page.evaluate(ASK, [f"{api}/predictions/demo/iris", key])
        shop.shutdown()
    assert demo.dmls("keys", "revoke", "demo/iris", key.split("_")[1]).returncode == 0


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


def lines(*wanted: str) -> Any:
    """Return a pattern of a text that has these lines one below the other."""
    return re.compile(re.escape("\n".join(wanted)))


def line_of(text: str, line: str) -> int:
    return text.splitlines().index(line) + 1
