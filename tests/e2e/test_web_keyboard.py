"""Every page by keyboard alone, in a real Chromium: what Tab reaches, whether it shows, what Enter does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e import data
from tests.e2e.test_web import JOB, signed_in
from tests.services.demo_platform import Demo
from tests.services.platform_client import PlatformClient

PAGES = (
    "/",
    "/submit",
    "/platform",
    "/api",
    "/teams/demo/keys",
    JOB,
    *(f"{JOB}/{tab}" for tab in ("runs", "versions", "files", "history", "keys", "edit", "try")),
    f"{JOB}/runs/{{run}}",
    f"{JOB}/compare?run={{run}}&run={{run}}",
)

MARK = """() => {
  const reachable = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const radios = new Set();
  const expected = [...document.querySelectorAll(reachable)].filter((item) => {
    if (item.disabled || item.tabIndex < 0 || item.closest("dialog:not([open])")) return false;
    if (!item.checkVisibility({ visibilityProperty: true })) return false;
    if (item.type !== "radio") return true;
    const checked = document.querySelector(`input[name="${item.name}"]:checked`);
    if (radios.has(item.name) || (checked && checked !== item)) return false; // arrows move within a group
    radios.add(item.name);
    return true;
  });
  expected.forEach((item, at) => item.setAttribute("data-stop", at));
  return expected.length;
}"""
"""Number what Tab must reach, in the order of the page, and return how many there are."""

FOCUSED = """() => {
  const item = document.activeElement;
  if (!item || item === document.body) return null;
  const outlined = (part) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(part);
    return outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  };
  const around = item.closest(".editor") ?? item; // the editor outlines its frame
  const box = item.getBoundingClientRect();
  return {
    stop: item.hasAttribute("data-stop") ? Number(item.dataset.stop) : null,
    what: item.outerHTML.slice(0, 160),
    outlined: outlined(around),
    seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  };
}"""
"""What has the focus, whether it has an outline, and whether it is in the window."""

OUTER = """stops => stops.map((at) => document.querySelector(`[data-stop="${at}"]`)?.outerHTML.slice(0, 160)
  ?? `${at} is gone, since the page has changed`)"""
"""What has these numbers."""


@pytest.fixture
def page(browser: Browser, demo: Demo, platform: PlatformClient) -> Iterator[Page]:
    url = platform.settings["airflow_url"].rstrip("/") + "/dmls"
    expect.set_options(timeout=300_000)
    page = signed_in(
        browser, platform, url, base_url=url.removesuffix("/dmls"), viewport={"width": 1280, "height": 900}
    )
    yield page
    page.context.close()


def show(page: Page, path: str) -> None:
    """Open a page, and wait until its controls are enabled and no other test's file changes it."""
    page.goto(f"/dmls{path}")
    page.locator("main").wait_for()
    expect(page.locator("[data-scripted]")).to_have_count(0)
    expect(page.locator("#files tr:is([data-state=waiting], [data-state=scoring])")).to_have_count(0)
    page.wait_for_load_state("networkidle")


@pytest.mark.parametrize("path", PAGES)
def test_tab_reaches_every_control_in_order_and_shows_where_it_is(
    page: Page, platform: PlatformClient, path: str
):
    run = platform.runs("demo", "iris")[0]["dag_run_id"] if "{run}" in path else ""
    show(page, path.format(run=quote(run)))
    expected = page.evaluate(MARK)
    assert expected > 4
    stops = []
    for _ in range(expected + 10):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None or (found["stop"] == 0 and stops):
            break
        assert found["outlined"], found["what"]
        assert found["seen"], found["what"]
        if found["stop"] is not None:
            stops.append(found["stop"])
    missed = page.evaluate(OUTER, sorted(set(range(expected)) - set(stops)))
    assert missed == []
    assert stops == sorted(stops)


def inside(page: Page) -> bool:
    """Return whether the focus is in the open dialog, or in the browser's own bar."""
    found: bool = page.evaluate(
        "() => [document.body, null].includes(document.activeElement) || "
        "document.querySelector('dialog[open]').contains(document.activeElement)"
    )
    return found


def test_dialogs_keep_the_focus_and_return_it(page: Page):
    for path, dialogs in ((JOB, 4), (f"{JOB}/keys", 4)):
        show(page, path)
        openers = page.locator("button[data-dialog]:visible")
        assert openers.count() >= dialogs
        for at in range(openers.count()):
            opener = openers.nth(at)
            opener.focus()
            page.keyboard.press("Enter" if at % 2 else "Space")
            dialog = page.locator("dialog[open]")
            dialog.wait_for()
            assert inside(page)
            for _ in range(12):
                page.keyboard.press("Tab")
                assert inside(page), opener.inner_text()
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            expect(opener).to_be_focused()


def test_a_key_is_made_and_revoked_by_keyboard(page: Page):
    show(page, "/teams/demo/keys")
    page.get_by_label("Name").focus()
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    page.locator("#key").wait_for()
    page.get_by_role("button", name="Revoke typed").focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    dialog.get_by_role("button", name="Revoke").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Revoke typed")).to_have_count(0)


def test_a_file_is_chosen_and_scored_by_keyboard(page: Page, tmp_path: Path):
    file = tmp_path / "typed.csv"
    file.write_text(data.iris())
    show(page, f"{JOB}/files")
    with page.expect_file_chooser() as chooser:
        page.locator("input[type=file]").press("Enter")
    chooser.value.set_files(file)
    page.get_by_text("has all 4 columns of the model").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Score the file")).to_be_focused()
    page.keyboard.press("Enter")
    page.locator('tr[data-file="typed.csv"][data-state=scored]').wait_for()
    assert page.get_by_role("link", name="Download the predictions of typed.csv").is_visible()


def test_numbers_of_the_confusion_matrix_open_their_rows(page: Page):
    show(page, JOB)
    cell = page.locator("button[data-cell]").first
    cell.focus()
    page.keyboard.press("Space")
    expect(cell).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Enter")
    expect(cell).to_have_attribute("aria-expanded", "false")
