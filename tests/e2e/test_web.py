"""The page and its API on a real Airflow: who may what, the whole way, in a real browser."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import schemathesis
from axe_playwright_python.sync_playwright import Axe
from hypothesis import assume, given, settings
from playwright.sync_api import Browser, Page, expect
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.e2e import data
from tests.services.demo_platform import Demo
from tests.services.platform_client import PATIENCE, PlatformClient

JOB = "/jobs/demo/iris"
SAME = {"Sec-Fetch-Site": "same-origin"}
COMMON_CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)

FUZZED_EXAMPLES = 3
NOT_FUZZED = ("/drops/", "/doctor")
"""Parts of paths that write into S3 whatever they are sent, or take many seconds each time."""


def drop_ahead(platform: PlatformClient) -> None:
    platform.drop("page", "iris", data.SMALL_IRIS, data.iris())


def viewer_token(demo: Demo) -> str:
    """Return a token of someone who may only look, as Airflow itself would sign it."""
    secret = json.loads((demo.home / "identity.json").read_text())["credentials"]["airflow_jwt_secret"]
    now = int(time.time())
    claims = {"sub": "vera", "role": "VIEWER", "teams": [], "aud": "apache-airflow", "jti": uuid.uuid4().hex}
    return jwt.encode(claims | {"iat": now, "nbf": now, "exp": now + 3600}, secret, algorithm="HS512")


@pytest.fixture
def url(platform: PlatformClient) -> str:
    return platform.settings["airflow_url"].rstrip("/") + "/dmls"


@pytest.fixture
def admin(platform: PlatformClient, url: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {platform.token}"}, timeout=120
    )


@pytest.fixture
def viewer(demo: Demo, platform: PlatformClient, url: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {viewer_token(demo)}"}, timeout=120
    )


def wait_for(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return what ``look`` returns once that is something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.5)
    return found


def done(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


def operations(admin: httpx.Client) -> list[tuple[str, str]]:
    """Return method and path of every call, for the demo's job."""
    document = done(admin.get("/openapi.json"))
    fill = {"{team}": "demo", "{name}": "iris", "{run_id}": "none", "{upload}": "none"}
    found = []
    for path, calls in document["paths"].items():
        for part, value in fill.items():
            path = path.replace(part, value)
        found += [(method.upper(), path.removeprefix("/api/v1")) for method in calls]
    return found


def test_nobody_sees_anything_without_a_login(admin: httpx.Client, url: str):
    stranger = httpx.Client(base_url=f"{url}/api/v1", headers=SAME, timeout=120)
    found = operations(admin)
    assert len(found) > 20
    for method, path in found:
        assert stranger.request(method, path).status_code == 401, (method, path)
    page = httpx.get(f"{url}/", follow_redirects=False)
    assert (page.status_code, page.headers["location"].partition("?")[0]) == (303, "/auth/login")


def test_a_viewer_sees_and_cannot_change(admin: httpx.Client, viewer: httpx.Client):
    for path in ("/jobs", JOB, f"{JOB}/runs", f"{JOB}/versions", f"{JOB}/spec", f"{JOB}/served"):
        assert viewer.get(path).status_code == 200, path
    assert not any(done(viewer.get(JOB))["may"].values())
    changing = [
        (method, path) for method, path in operations(admin) if method != "GET" and path.startswith(JOB)
    ]
    assert {path.removeprefix(f"{JOB}/") for _, path in changing} >= {
        "deploy",
        "decline",
        "rollback",
        "undeploy",
        "runs",
        "pause",
        "retire",
        "spec",
    }
    for method, path in changing:
        if path.endswith("/predict") or "/predict/" in path:
            continue  # asking a model changes nothing
        assert viewer.request(method, path, json={}).status_code == 403, (method, path)


def test_another_sites_post_is_refused(platform: PlatformClient, url: str):
    browser = httpx.Client(cookies={"_token": platform.token}, timeout=120)
    pause = f"{url}/api/v1{JOB}/pause"
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {}):
        answer = browser.post(pause, json={"paused": True}, headers=headers)
        assert answer.status_code == 403, headers
    assert platform.airflow("GET", "/dags/dmls.demo.iris")["is_paused"] is False
    assert browser.post(pause, json={"paused": False}, headers=SAME).status_code == 200


@pytest.mark.timeout(1200)
def test_the_whole_way_over_the_api(platform: PlatformClient, admin: httpx.Client):
    job = "/jobs/page/iris"
    platform.wait_status("page", "iris", "awaiting approval")
    done(admin.post(f"{job}/deploy"))
    platform.wait_status("page", "iris", "deployed")
    (first,) = done(admin.get(f"{job}/runs"))
    run = done(admin.get(f"{job}/runs/{first['run_id']}"))
    assert run["result"]["score"] == first["score"]
    assert len(run["trials"]) == 2
    assert {task["task_id"]: task["state"] for task in run["tasks"]}["search"] == "success"
    assert any("trial" in line for line in done(admin.get(f"{job}/runs/{first['run_id']}/log")))
    report = admin.get(f"{job}/runs/{first['run_id']}/report")
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts;")
    assert "page/iris" in report.text

    assert admin.post(f"{job}/runs", json={"changes": {"seed": "x"}}).json()["problems"][0]["found"] == '"x"'
    done(admin.post(f"{job}/runs", json={"changes": {"seed": 11}}))
    wait_for(lambda: len(done(admin.get(f"{job}/runs"))) == 2)
    wait_for(lambda: platform.status("page", "iris")["state"] != "deployed")
    platform.wait_status("page", "iris", "awaiting approval")
    done(admin.post(f"{job}/deploy"))
    platform.wait_status("page", "iris", "deployed")
    # The status speaks of it some moments before the task has ended.
    second = wait_for(lambda: (run := done(admin.get(f"{job}/runs"))[0])["served_as"] and run)
    assert (second["changes"], second["asked_by"], second["served_as"]) == ({"seed": 11}, "admin", 2)
    wait_for(lambda: done(admin.get(job))["served"] == 2)
    side_by_side = done(admin.get(f"{job}/runs/compare", params={"run": [first["run_id"], second["run_id"]]}))
    differing = {row["key"]: row["values"] for row in side_by_side["differences"]}
    assert differing["seed"][1] == 11
    assert "accuracy" in {row["key"] for row in side_by_side["scores"]}

    done(admin.post(f"{job}/rollback", json={"version": 1}))
    wait_for(lambda: done(admin.get(job))["served"] == 1)

    done(admin.post(f"{job}/pause", json={"paused": True}))
    assert done(admin.get(job))["paused"] is True
    done(admin.post(f"{job}/runs", json={}))
    assert "paused" in wait_for(lambda: done(admin.get(job))["waiting"])
    (queued,) = [entry for entry in done(admin.get("/platform"))["queue"] if entry["job"] == "page/iris"]
    assert (queued["place"], "paused" in queued["reason"]) == (None, True)
    spec = done(admin.get(f"{job}/spec"))
    wrong = admin.put(f"{job}/spec", json=spec | {"toml": spec["toml"].replace("n_trials", "n_trails")})
    assert (wrong.status_code, wrong.json()["problems"][0]["line"]) == (422, 2)
    changed = spec | {"toml": spec["toml"].replace("n_trials = 2", "n_trials = 3")}
    form = "/drops/page/iris/spec"
    done(admin.put(form, json=changed))
    assert [admin.put(path, json=changed).status_code for path in (form, f"{job}/spec")] == [409, 409]
    newest = wait_for(lambda: len(found := done(admin.get(f"{job}/versions"))) == 2 and found)[0]
    assert [(change["key"], change["before"], change["after"]) for change in newest["changes"]] == [
        ("n_trials", 2, 3)
    ]

    done(admin.post(f"{job}/retire"))
    assert admin.post(f"{job}/retire").status_code == 404
    assert platform.get("incoming/page/iris/spec.toml") is None
    assert done(admin.get(job))["state"] == "retired"
    events = [(event["event"], event["who"]) for event in done(admin.get(f"{job}/events"))]
    for event in ("dmls_retire", "dmls_respec", "patch_dag", "update_hitl_detail"):
        assert (event, "admin") in events


def test_the_table_is_searched_filtered_and_cut(platform: PlatformClient, admin: httpx.Client):
    found = wait_for(
        lambda: (
            (answer := done(admin.get("/jobs", params={"q": "demo iris", "team": "demo"})))["complete"]
            and answer["jobs"]
            and answer
        )
    )
    (row,) = found["jobs"]
    assert (row["job"], row["models"], row["metric"]) == (
        "demo/iris",
        ["random-forest-classifier"],
        "accuracy",
    )
    assert row["score"] > 0.8
    assert row["served"] >= 1
    assert found["troubles"] == []
    assert done(admin.get("/jobs", params={"q": "no such job"}))["total"] == 0


def test_the_platform_tells_how_it_is(admin: httpx.Client, viewer: httpx.Client):
    found = done(admin.get("/platform"))
    assert {service["name"]: service["state"] for service in found["services"]} == {
        "Airflow": "ok",
        "Store": "ok",
        "MLflow": "ok",
        "Triton": "ok",
    }
    assert {pool["name"] for pool in found["pools"]} == {"dmls_cpu", "dmls_gpu"}
    assert found["leased"] == len(found["leases"])
    assert viewer.get("/platform/doctor").status_code == 403


def test_no_input_breaks_the_api(platform: PlatformClient, admin: httpx.Client, url: str):
    document = done(admin.get("/openapi.json"))
    schema = schemathesis.openapi.from_dict(document)
    headers = {"Authorization": f"Bearer {platform.token}"}
    for path in (f"{JOB}/runs/a%00", f"{JOB}/runs/compare?run=a%00&run=b"):
        assert admin.get(path).status_code == 404, path
    fuzzed = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if any(part in operation.path for part in NOT_FUZZED):
            continue

        @given(case=operation.as_strategy())
        @settings(max_examples=FUZZED_EXAMPLES, deadline=None, database=None, derandomize=True)
        def fuzz(case: schemathesis.Case) -> None:
            # Airflow itself answers where a path holds a line break: its mounts match none.
            assume(not any("\n" in str(value) for value in (case.path_parameters or {}).values()))
            case.call_and_validate(base_url=url, headers=headers, checks=list(COMMON_CHECKS), timeout=120)

        fuzz()
        fuzzed += 1
    assert fuzzed > 20


def signed_in(browser: Browser, platform: PlatformClient, url: str, **options: Any) -> Page:
    """Return a page of a browser that has signed in."""
    context = browser.new_context(**options)
    context.set_default_timeout(120_000)
    context.add_cookies([{"name": "_token", "value": platform.token, "url": url}])
    return context.new_page()


WIDTHS = (390, 1280, 1920)
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
"""Options of axe: what another colour scheme changes."""


@pytest.mark.timeout(900)
def test_pages_in_a_browser(browser: Browser, platform: PlatformClient, admin: httpx.Client, url: str):
    run = done(admin.get(f"{JOB}/runs"))[-1]["run_id"]
    page = signed_in(browser, platform, url, color_scheme="light")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    axe = Axe()

    def violations(**options: Any) -> list[Any]:
        found = axe.run(page, **options).response["violations"]
        return [(one["id"], [node["target"] for node in one["nodes"]]) for one in found]

    for path, sign in (
        ("/", "demo/iris"),
        (JOB, "Leaderboard"),
        (f"{JOB}/runs", "Compare"),
        (f"{JOB}/runs/{run}", "Tuned parameters"),
        (f"{JOB}/compare?run={run}&run={run}", "Which one is better?"),
        (f"{JOB}/try", "sepal_length"),
        (f"{JOB}/versions", "Version 1"),
        (f"{JOB}/files", "Score the file"),
        (f"{JOB}/history", "approved the model"),
        (f"{JOB}/keys", "New key"),
        (f"{JOB}/edit", "Hyperparameters"),
        ("/teams/demo/keys", "New key"),
        ("/submit", "Submit a job"),
        ("/platform", "dmls_cpu"),
        ("/api", "List jobs"),
        (f"/api/v1{JOB}/runs/{run}/report", "demo/iris"),
    ):
        page.goto(url + path, wait_until="domcontentloaded")
        page.get_by_text(sign).first.wait_for()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert too_wide <= 0, (path, width, too_wide)
            if width < max(WIDTHS):  # wider ones differ by their margins alone
                assert violations() == [], (path, width)
        page.emulate_media(color_scheme="dark")
        assert violations(options=CONTRAST) == [], (path, "dark")
        page.emulate_media(color_scheme="light")
    works_with_a_keyboard(page, url)
    assert errors == []
    page.context.close()


def works_with_a_keyboard(page: Page, url: str) -> None:
    """Skip to the table, sort it, open a dialog and leave it, without a mouse."""
    expect.set_options(timeout=300_000)
    page.goto(f"{url}/")
    page.get_by_role("link", name="demo/iris").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.goto(f"{url}/?sort=job&descending=false")
    page.get_by_role("link", name="Owner").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**sort=owner**")
    page.goto(f"{url}{JOB}")
    opener = page.get_by_role("button", name="Run again…")
    opener.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Run again", exact=True).wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(opener).to_be_focused()


def test_a_file_is_scored_on_the_page(
    browser: Browser, platform: PlatformClient, viewer: httpx.Client, url: str, tmp_path: Path
):
    rows = data.iris().splitlines()
    file, wrong = tmp_path / "on-the-page.csv", tmp_path / "wrong.csv"
    file.write_text("\n".join(rows) + "\n")
    wrong.write_text("sepal_length\n5.1\n")
    page = signed_in(browser, platform, url, accept_downloads=True)
    page.goto(f"{url}{JOB}/files")
    page.set_input_files("input[type=file]", wrong)
    page.get_by_text("no column 'sepal_width'").wait_for()
    page.set_input_files("input[type=file]", file)
    page.get_by_text("has all 4 columns of the model").wait_for()
    page.get_by_role("button", name="Score the file").click()
    page.locator('tr[data-file="on-the-page.csv"][data-state=scored]').wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the predictions of on-the-page.csv").click()
    predictions = Path(download.value.path()).read_text().splitlines()
    assert len(predictions) == len(rows)
    assert predictions[0].startswith(f"{rows[0]},model_version,prediction,probability_setosa")
    files = "/scoring/demo/iris"
    (first,) = [found for found in done(viewer.get(files))["files"] if found["file"] == "on-the-page.csv"]
    page.get_by_role("button", name="Score on-the-page.csv again").click()
    wait_for(lambda: done(viewer.get(f"{files}/file?file=on-the-page.csv"))["uploaded"] > first["uploaded"])
    page.locator('tr[data-file="on-the-page.csv"][data-state=scored]').wait_for()
    for method, action in (("POST", "again"), ("DELETE", "file")):
        assert viewer.request(method, f"{files}/{action}?file=on-the-page.csv").status_code == 403
    page.get_by_role("button", name="Delete on-the-page.csv").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator('tr[data-file="on-the-page.csv"]')).to_have_count(0)
    assert [key for key in platform.keys("scored/demo/iris/") if "on-the-page" in key] == []
    page.context.close()

    assert viewer.put(f"{files}/file?file=other.csv", content=b"x").status_code == 403
    assert viewer.get(f"{files}/result?file=flowers.csv").status_code == 403


def test_airflows_navigation_leads_to_the_page(browser: Browser, platform: PlatformClient, url: str):
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(120_000)
    context.add_cookies([{"name": "_token", "value": platform.token, "url": url}])
    page = context.new_page()
    page.goto(platform.settings["airflow_url"])
    page.get_by_role("link", name="DMLS").first.click()
    frame = page.frame_locator("iframe")
    frame.get_by_role("link", name="demo/iris").click()
    heading = frame.get_by_role("heading", name="demo/iris")
    heading.wait_for()
    assert heading.is_visible()
    frame.get_by_role("link", name="Airflow run").click()
    page.wait_for_url("**/dags/dmls.demo.iris/runs/**")
    assert "/dags/dmls.demo.iris/runs/" in page.url
    context.close()
