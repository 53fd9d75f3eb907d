"""A person who has never seen DMLS before and goes through its page with a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Download, Page

PATIENCE = 180_000
"""Milliseconds that anything may take on a busy machine, but a training."""

STEP = 250
"""Milliseconds between two movements of the mouse."""

TRAINING = 900_000

WIDE, NARROW = (1360, 900), (412, 915)


@dataclass
class Newcomer:
    """One person at the page of one platform.

    Attributes:
        page: the browser's page.
        settings: of the platform, ``platform.json``'s.
        look: called at each step with its name.
        errors: what the browser complained about, refused answers apart, and what it asked of strangers.
    """

    page: Page
    settings: Mapping[str, str]
    look: Callable[[str], None] = lambda _: None
    errors: list[str] = field(default_factory=list)

    @property
    def home(self) -> str:
        """The page's address."""
        return self.settings["airflow_url"].rstrip("/") + "/dmls"

    def log_in(self) -> None:
        """Ask for the page, be led to Airflow's login, and from there to the page."""
        self.page.goto(f"{self.home}/submit")
        self.page.get_by_label("Username").fill(self.settings["airflow_username"])
        self.page.get_by_label("Password").fill(self.settings["airflow_password"])
        self.look("login")
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Submit a job").wait_for()

    def choose(self, data: Path, *, team: str, name: str) -> None:
        """Choose a data file, and say what the job is called."""
        self.page.set_input_files("#file", data)
        self._name(team, name)

    def drag(self, data: Path, *, team: str, name: str) -> None:
        """Drag a data file onto the page, as from a desktop, and say what the job is called."""
        box = self.page.locator("#drop").bounding_box()
        assert box is not None
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        dragged = {"items": [], "files": [str(data)], "dragOperationsMask": 1}
        browser = self.page.context.new_cdp_session(self.page)
        over = self.page.locator("#drop.over")
        browser.send("Input.dispatchDragEvent", {"type": "dragEnter", **place, "data": dragged})
        for _ in range(PATIENCE // STEP):
            # As a hand does, again and again: the page's script may still be on its way.
            browser.send("Input.dispatchDragEvent", {"type": "dragOver", **place, "data": dragged})
            if over.count():
                break
            self.page.wait_for_timeout(STEP)
        self.look("dragging")
        browser.send("Input.dispatchDragEvent", {"type": "drop", **place, "data": dragged})
        browser.detach()
        self._name(team, name)

    def _name(self, team: str, name: str) -> None:
        self.page.locator("#columns tr").first.wait_for()
        self.page.locator("fieldset.models input").first.wait_for()
        self.page.locator("#verdict.good").wait_for()
        self.look("columns")
        self.page.get_by_label("Team").last.fill(team)
        self.page.get_by_label("Job", exact=True).fill(name)
        self.page.get_by_text(f"{team}/{name} is").wait_for()

    def choose_model(self, model: str) -> None:
        """Tick a model in the form, instead of DMLS's choice."""
        from playwright.sync_api import expect

        self.page.locator("[id^=model-auto-]:checked").wait_for()
        self.page.locator(f"#model-{model}").check()
        expect(self.page.locator("#toml")).to_have_value(re.compile(f'^model = "{model}"'))

    def set_range(self, hyperparameter: str, low: float, high: float) -> None:
        """Type a range into the form."""
        row = self.page.get_by_role("group", name=hyperparameter)
        row.get_by_label("from", exact=True).fill(str(low))
        row.get_by_label("to", exact=True).fill(str(high))

    def submit(self) -> str:
        """Press the button, and return what the page says of the drop once it is decided."""
        self.page.get_by_role("button", name="Submit", exact=True).click()
        self.page.locator("#answer #state").wait_for()
        self.look("submitted")
        return self.page.locator("#answer").inner_text()

    def watch(self) -> None:
        """Go to the job's page and wait there until a model waits for approval."""
        self.page.locator("#to-job").click()
        self.page.locator("#live").wait_for()
        self.look("training")
        self.page.get_by_role("button", name="Deploy", exact=True).wait_for(timeout=TRAINING)
        self.look("trained")

    def read_report(self) -> str:
        """Read the result on the job's page, then open the report, and return its text."""
        self.page.get_by_role("heading", name="How good is it?").wait_for()
        job = self.page.url
        self.page.get_by_role("link", name="Full report").click()
        self.page.wait_for_url("**/report")
        self.look("report")
        text = self.page.locator("body").inner_text()
        self.page.goto(job)
        return text

    def deploy(self, version: int = 1) -> None:
        """Approve the model and wait until it is served."""
        self.page.get_by_role("button", name="Deploy", exact=True).click()
        self._await_served(version)
        # Triton serves the version before the run's last task has ended; until then a rollback has to wait.
        self.page.locator("#state").get_by_text("deployed", exact=True).wait_for(timeout=TRAINING)
        self.look("deployed")

    def run_again(self, seed: int, hyperparameter: str, low: int, high: int) -> None:
        """Start a run with another seed and range, and wait until its model waits for approval."""
        self.page.get_by_role("button", name="Run again…").click()
        dialog = self.page.locator("dialog[open]")
        dialog.get_by_label("Seed").fill(str(seed))
        dialog.get_by_text("Hyperparameters", exact=True).click()
        row = dialog.get_by_role("group", name=hyperparameter)
        row.get_by_label("from", exact=True).fill(str(low))
        row.get_by_label("to", exact=True).fill(str(high))
        self.look("again")
        dialog.get_by_role("button", name="Start the run").click()
        self.page.get_by_role("button", name="Deploy", exact=True).wait_for(timeout=TRAINING)

    def roll_back(self, version: int) -> None:
        """Have an earlier version served again, and wait until the page says so."""
        self.page.get_by_role("button", name="Roll back…").click()
        dialog = self.page.locator("dialog[open]")
        dialog.get_by_label("Version in Triton").select_option(str(version))
        self.look("rolling back")
        dialog.get_by_role("button", name="Roll back").click()
        self._await_served(version)
        self.look("rolled back")

    def _await_served(self, version: int) -> None:
        self.page.get_by_text(f"version {version} is served", exact=True).wait_for(timeout=TRAINING)

    def ask(self, row: Mapping[str, str]) -> str:
        """Type a row into the form of the served model, and return its prediction."""
        self.page.get_by_role("link", name="Try it").click()
        for column, value in row.items():
            self.page.get_by_label(column, exact=True).fill(value)
        self.page.get_by_role("button", name="Predict").click()
        self.page.locator("#answer[aria-busy='false'] #prediction").wait_for()
        self.look("try")
        return self.page.locator("#prediction").inner_text()

    def score(self, data: Path) -> Download:
        """Have a whole CSV scored."""
        self.page.set_input_files("#csv", data)
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name="Score and download").click()
        return download.value


def arrive(
    browser: Browser,
    settings: Mapping[str, str],
    look: Callable[[Page, str], None] = lambda *_: None,
    *,
    size: tuple[int, int] = WIDE,
    **options: Any,
) -> Newcomer:
    """Open a browser's page for a newcomer.

    Args:
        browser: drives it.
        settings: of the platform.
        look: called with the page and each step's name.
        size: of the window, in pixels.
        options: of the browser's context.
    """
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    newcomer = Newcomer(page, settings, lambda step: look(page, step))
    page.on("pageerror", lambda error: newcomer.errors.append(str(error)))
    own = (settings["airflow_url"].rstrip("/") + "/", "data:", "blob:")
    page.on("request", lambda asked: asked.url.startswith(own) or newcomer.errors.append(asked.url))
    page.on(
        "console",
        lambda said: (
            newcomer.errors.append(said.text)
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
    )
    return newcomer
