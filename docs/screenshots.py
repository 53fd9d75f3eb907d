"""Take the screenshots in README and docs from a real run: ``python -m docs.screenshots``.

A browser does what a new user does on a running platform (``dmls demo``): log in, upload a CSV, submit, watch,
read the report, deploy, try, run again, roll back. Screenshots are written to ``docs/images/``.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.services.browser import find_chromium
from tests.services.newcomer import NARROW, WIDE, Newcomer, arrive

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parent / "images"
TEAM, NAME = "shop", "churn"
PICTURES = ("columns", "training", "trained", "report", "try", "rolling back")
"""Steps with a screenshot."""

ROWS = 1_500


def main() -> int:
    """Take the screenshots; return the exit code."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--home", type=Path, default=Path(".dmls"), help="state folder of the platform")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder of the screenshots")
    arguments = parser.parse_args()
    state = arguments.home / "platform.json"
    chromium = find_chromium()
    if not state.exists() or not chromium:
        sys.stderr.write("start a platform (dmls demo) and install Chromium\n")
        return 1
    settings = json.loads(state.read_text())["settings"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        table = write_customers(Path(folder) / "customers.csv")
        whole_way(browser, settings, table, arguments.out)
        browser.close()
    return 0


def whole_way(browser: Browser, settings: dict[str, str], table: Path, out: Path) -> None:
    """Take the steps once, then open the pages in dark mode and on a phone."""

    def look(page: Page, step: str) -> None:
        if step == "training":
            page.get_by_role("img", name="Score of each trial").locator("canvas").first.wait_for()
            page.wait_for_timeout(1_000)  # the chart draws itself
        if step in PICTURES:
            page.mouse.move(0, 0)
            page.screenshot(path=out / f"page-{step.replace(' ', '-')}.png")

    newcomer = arrive(browser, settings, look, color_scheme="light")
    newcomer.log_in()
    newcomer.drag(table, team=TEAM, name=NAME)
    newcomer.choose_model("random-forest-classifier")
    newcomer.page.get_by_label("Trials").fill("60")
    newcomer.submit()
    newcomer.watch()
    newcomer.read_report()
    newcomer.deploy()
    newcomer.ask({"monthly_fee": "39.5", "support_calls": "6"})
    newcomer.page.get_by_role("link", name="The job").click()
    newcomer.run_again(3, "max_depth", 3, 12)
    newcomer.deploy(version=2)
    newcomer.roll_back(1)
    look_around(newcomer, out)
    signed_in = newcomer.page.context.storage_state()
    for name, scheme, size in (("dark", "dark", WIDE), ("narrow", "light", NARROW)):
        again = arrive(browser, settings, color_scheme=scheme, size=size, storage_state=signed_in)
        show(again, table, out, name)


def look_around(newcomer: Newcomer, out: Path) -> None:
    """Take screenshots of the pages that show what was done: jobs, compared runs, the platform, Airflow."""
    page = newcomer.page
    page.goto(f"{newcomer.home}/jobs/{TEAM}/{NAME}/runs")
    for run in page.get_by_role("checkbox").all():
        run.check()
    page.get_by_role("button", name="Compare selected runs").click()
    page.get_by_text("Differences").wait_for()
    page.screenshot(path=out / "page-compare.png")
    page.goto(f"{newcomer.home}/platform")
    page.get_by_role("heading", name="Leases").wait_for()
    page.screenshot(path=out / "page-platform.png")
    page.goto(newcomer.settings["airflow_url"])
    page.get_by_role("link", name="DMLS").first.click()
    page.frame_locator("iframe").get_by_role("link", name=f"{TEAM}/{NAME}").wait_for()
    page.screenshot(path=out / "page-jobs.png")
    page.set_viewport_size({"width": 1500, "height": 807})
    page.goto(f"{newcomer.settings['airflow_url']}/dags/dmls.demo.iris")
    page.get_by_text("promote").first.wait_for()
    page.wait_for_timeout(10_000)  # its parts load one after the other
    page.screenshot(path=out / "airflow-run.png")


def show(newcomer: Newcomer, table: Path, out: Path, name: str) -> None:
    """Take screenshots of the form and the job."""
    page = newcomer.page
    page.goto(f"{newcomer.home}/submit")
    newcomer.choose(table, team=TEAM, name="another")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=out / f"page-columns-{name}.png")
    page.goto(f"{newcomer.home}/jobs/{TEAM}/{NAME}")
    page.get_by_role("link", name="Try it").wait_for()
    page.screenshot(path=out / f"page-job-{name}.png")


def write_customers(file: Path) -> Path:
    """Write made-up customers, of whom some leave."""
    draw = random.Random(7)  # noqa: S311 - made-up data
    with file.open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        writer.writerow(
            ["customer_id", "joined", "plan", "age", "monthly_fee", "support_calls", "newsletter", "churned"]
        )
        for number in range(ROWS):
            plan = draw.choices(["basic", "plus", "premium"], [5, 3, 1])[0]
            calls = min(9, int(draw.expovariate(0.6)))
            fee = {"basic": 15, "plus": 30, "premium": 55}[plan] + draw.gauss(0, 4)
            leaves = 0.9 if calls > 3 else 0.4 if calls > 1 and plan == "basic" else 0.04
            joined = f"20{draw.randint(18, 24)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
            age = "" if draw.random() < 0.08 else draw.randint(18, 80)
            newsletter = draw.choice(["yes", "no"])
            churned = "yes" if draw.random() < leaves else "no"
            writer.writerow([f"C-{number:05}", joined, plan, age, f"{fee:.2f}", calls, newsletter, churned])
    return file


if __name__ == "__main__":
    sys.exit(main())
