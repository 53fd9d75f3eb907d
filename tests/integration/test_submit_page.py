"""The page Submit in a real browser, on a real S3 server; Airflow's access checks are replaced."""

from __future__ import annotations

import gzip
import random
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
import uvicorn
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI

from dmls_core.airflow import auth
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.store import Store
from dmls_core.store.s3 import S3Store
from dmls_core.web import dependencies
from dmls_core.web.app import create_app
from dmls_core.web.services import estimates, stored_schema, submissions
from tests.services.seaweed import S3Server
from tests.unit.data.formats.test_excel import workbook

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROWS = 200_000
LARGE = 8 << 20

PATIENCE = 300_000
"""Milliseconds that anything may take on a busy machine."""


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = S3Store(s3_server.bucket(), "root", s3_server.client())
    for module in (estimates, stored_schema, submissions):
        monkeypatch.setattr(module, "open_store", lambda: store)
    monkeypatch.setattr(submissions, "open_store_for_uploads", lambda: store)
    monkeypatch.setattr(estimates, "airflow_settings", lambda: AirflowSettings(root="s3://dmls"))
    for module in (auth, submissions):
        monkeypatch.setattr(module, "is_authorized", lambda *_, **__: True)
    return store


@pytest.fixture
def page(store: Store, browser: Browser) -> Iterator[Page]:
    from playwright.sync_api import expect

    app = create_app()
    user = SimpleAuthManagerUser(username="ada", role="admin")
    app.dependency_overrides[dependencies.signed_in] = lambda: user
    app.dependency_overrides[dependencies.check_site_access] = lambda: None
    root = FastAPI()
    root.mount("/dmls", app)
    server = uvicorn.Server(uvicorn.Config(root, host="127.0.0.1", port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    page = browser.new_page(viewport={"width": 1360, "height": 900})
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"http://127.0.0.1:{port}/dmls/submit")
    yield page
    assert errors == []
    page.close()
    expect.set_options(timeout=5_000)
    server.should_exit = True
    thread.join()


def frame() -> pl.DataFrame:
    draw = random.Random(1)
    half = ROWS // 2
    return pl.DataFrame(
        {
            "row": range(ROWS),
            "noise": [draw.random() for _ in range(ROWS)],
            "more": [draw.random() for _ in range(ROWS)],
            "half": ["first"] * half + ["second"] * half,
        }
    )


def write(path: Path) -> Path:
    table = frame()
    noise = [pl.col("noise").hash(seed).alias(f"noise {seed}") for seed in range(4)]
    if path.suffix == ".parquet":
        table.with_columns(noise).write_parquet(path, compression="uncompressed")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(table.with_columns(noise).write_csv().encode(), 1))
    else:
        few = table.gather_every(4)
        workbook(path, {"Data": [few.columns, *map(list, few.rows())]})
        # Excel workbooks are compressed, so this one is made large by a part without cells.
        with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
            archive.writestr("docProps/thumbnail.bin", random.Random(2).randbytes(LARGE))
    assert path.stat().st_size > LARGE
    return path


@pytest.mark.parametrize("name", ["sales.parquet", "sales.csv.gz", "sales.xlsx"])
def test_a_large_file_that_is_not_text_is_uploaded_and_its_columns_are_inferred_in_s3(
    page: Page, store: Store, tmp_path: Path, name: str
):
    from playwright.sync_api import expect

    path = write(tmp_path / name)

    page.set_input_files("#file", path)
    expect(page.locator("#data-note")).to_contain_text("is uploaded before its columns are inferred")
    upload = page.get_by_role("button", name=f"Upload {name}")
    expect(upload).to_be_enabled()
    expect(page.get_by_label("Team").last).to_have_value("default")  # as of the command line
    page.get_by_label("Team").last.fill("lab")
    upload.click()

    expect(page.locator("#schema-summary")).to_contain_text("columns")
    expect(page.locator("#columns tr", has_text="half")).to_be_visible()
    expect(page.locator("#data-note strong")).to_have_text(name)
    assert store.head(f"incoming/lab/{page.get_by_label('Job', exact=True).input_value()}/{name}")
    page.get_by_label("Use half as").select_option("target")
    page.screenshot(path=tmp_path / "submit.png", full_page=True)
    # It is not uploaded again.
    requests: list[str] = []
    page.on("request", lambda request: requests.append(f"{request.method} {request.url}"))
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#answer")).to_contain_text("Waiting for the result")
    assert not [one for one in requests if "/uploads" in one]
    assert any(one.startswith("PUT") and one.endswith("/spec") for one in requests)


def test_a_small_file_that_is_not_text_is_read_at_once(page: Page, tmp_path: Path):
    from playwright.sync_api import expect

    rare = pl.Series("rare", ["often"] * 950 + ["rare"] * 50).shuffle(1)
    small = frame().head(500).vstack(frame().tail(500)).with_columns(rare)
    small.write_parquet(tmp_path / "small.parquet")
    page.set_input_files("#file", tmp_path / "small.parquet")

    expect(page.locator("#data-note")).to_contain_text("is ready to submit")
    expect(page.locator("#columns tr", has_text="half")).to_contain_text("first, second")

    # Each target brings its metric and model, and the former one is a feature again.
    chosen = [("half", ""), ("rare", "balanced_accuracy"), ("noise", ""), ("rare", "balanced_accuracy")]
    for at, (target, metric) in enumerate(chosen):
        page.get_by_label(f"Use {target} as").select_option("target")
        expect(page.locator("#metric")).to_have_value(metric)
        task = "regressor" if target == "noise" else "classifier"
        expect(page.locator(f"#model-auto-{task}")).to_be_checked()
        if at:
            former = chosen[at - 1][0]
            role = "feature" if former == "noise" else "category"
            expect(page.get_by_label(f"Use {former} as")).to_have_value(role)


def test_the_page_asks_whether_a_text_is_a_value_and_reads_it_as_one(page: Page, tmp_path: Path):
    from playwright.sync_api import expect

    texts = ("None", "Mild", "Severe")
    rows = "".join(f"{at * 7 % 31},${at * 3 % 11},{at % 5},{texts[at % 3]}\n" for at in range(60))
    (tmp_path / "a.csv").write_text(f"age,fee,a\u202eb,diagnosis\n{rows}")
    page.set_input_files("#file", tmp_path / "a.csv")

    expect(page.locator("#remarks")).to_contain_text(
        "diagnosis ('None' in 20 rows). If 'None' is a value there"
    )
    expect(page.locator("#columns")).to_contain_text(r"a\u202eb")
    expect(page.locator("#balance")).to_contain_text("Mild")
    expect(page.locator("#balance")).not_to_contain_text("None")
    expect(page.locator("#reading")).to_have_attribute("open", "")  # since something was detected
    page.get_by_label("Not missing").fill("None")
    page.get_by_label("Not missing").press("Tab")
    expect(page.locator("#remarks")).to_be_empty()
    expect(page.locator("#balance")).to_contain_text("None")
    # What was detected of a column stays, and is shown.
    expect(page.locator("#reading-numbers")).to_have_text("fee (unit $)")
    expect(page.get_by_label("Use fee as")).to_have_value("feature")
