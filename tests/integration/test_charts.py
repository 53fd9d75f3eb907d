"""The charts of reports and of the page, in a browser, offline and under their content security policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dmls_core.html import STATIC
from dmls_core.web.middleware import CONTENT_SECURITY_POLICY
from dmls_core.web.pages import MEDIA_TYPES
from dmls_core.web.templating import environment, static_files
from tests.services.browser import browser  # noqa: F401
from tests.unit.evaluate.evidence import HOSTILE, Case, surface, trial

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("browser")]

TRIALS = [trial(number, 0.5 + 0.3 * ((7 * number) % 20) / 20, surface=surface(0.8)) for number in range(20)]
TRIALS.append(trial(20, 0.4, state="pruned"))
LINE = {"axes": {"n_estimators": [50, 100, 200]}, "values": [0.7, 0.8, 0.75]}
COMPARISON = {
    "metric": "accuracy", "champion_version": 4, "champion_score": 0.81, "challenger_score": 0.93,
    "difference": 0.12, "interval": [0.07, 0.17], "probability": 0.995, "min_improvement": 0.01,
    "rows": 240, "comparable": True, "better": True, "conclusive": True,
    "reason": "the challenger is better by 0.12",
}  # fmt: skip
FEW_SIZES = [trial(number, 0.8 + number / 100, surface=LINE) for number in range(9)]
EQUAL = {**surface(0.8), "values": [0.8] * 9}
REPORTS = {
    "regression": (Case(0), TRIALS, {}),
    "binary": (Case(2, names=[HOSTILE, HOSTILE + "2"]), TRIALS, {"comparison": COMPARISON}),
    "classes": (
        Case(40, rows=400),
        [trial(number, 0.8 + number / 100, surface=LINE) for number in range(9)],
        {},
    ),
}


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:  # noqa: F811
    """A page without network; the test fails if it logs an error."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    # Chromium advises on the canvases that this module reads.
    page.on("console", lambda message: "Canvas2D" in message.text or errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def draw_all(page: Page) -> None:
    for box in page.query_selector_all("[data-chart]"):
        box.scroll_into_view_if_needed()
        box.wait_for_selector("canvas")


def colored_pixels(page: Page) -> list[int]:
    """Return the number of pixels that each chart has drawn."""
    found: list[int] = page.evaluate(
        """() => [...document.querySelectorAll("canvas")].map((canvas) => {
             const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
             return data.filter((value, at) => at % 4 === 3 && value > 0).length; })"""
    )
    return found


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_a_report_draws_its_charts_offline(page: Page, tmp_path: Path, name: str, scheme: Any, width: int):
    case, trials, changes = REPORTS[name]
    (tmp_path / "report.html").write_text(case.page(trials, **changes))
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((tmp_path / "report.html").as_uri())
    draw_all(page)
    boxes = len(page.query_selector_all("[data-chart]"))
    pixels = colored_pixels(page)
    assert len(pixels) == boxes > 8, "a browser prints the last of several canvases only"
    assert min(pixels) > 500
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_reports_use_every_builder():
    """So that the test above has drawn each of them."""
    defined = set(re.findall(r"^  (\w+)\(\{", (STATIC / "charts.js").read_text(), re.MULTILINE))
    pages = [case.page(trials, **changes) for case, trials, changes in REPORTS.values()]
    assert {name for page in pages for name in re.findall(r'data-chart="(\w+)"', page)} == defined


def test_a_tooltip_shows_names_literally(page: Page, tmp_path: Path):
    case, trials, changes = REPORTS["binary"]
    (tmp_path / "report.html").write_text(case.page(trials, **changes))
    page.goto((tmp_path / "report.html").as_uri())
    chart = page.get_by_label("Permutation importance").locator(".drawing")
    chart.scroll_into_view_if_needed()
    chart.locator("canvas").first.wait_for()
    box = chart.bounding_box()
    assert box is not None
    for step in range(0, int(box["height"]), 8):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + step)
        if HOSTILE in chart.inner_text():
            return
    raise AssertionError("no tooltip has the name")


def test_a_report_is_printed_with_all_charts_in_light_colors(page: Page, tmp_path: Path):
    case, trials, changes = REPORTS["regression"]
    (tmp_path / "report.html").write_text(case.page(trials, **changes))
    page.emulate_media(color_scheme="dark")
    page.goto((tmp_path / "report.html").as_uri())
    undrawn = len(page.query_selector_all(".drawing:not(:has(canvas))"))
    assert undrawn
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.query_selector_all(".drawing:not(:has(canvas))") == []
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 32, 39)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(228, 232, 238)"


@pytest.fixture
def served_page(page: Page) -> Page:
    """A page of the app: its policy forbids inline scripts and styles, and charts load their library."""
    trials = [
        {"number": number, "value": number / 10, "params": {"depth": number, "rate": 0.1 * number}}
        for number in range(1, 6)
    ]
    values = {"names": ["depth", "rate"], "logs": ["rate"], "trials": trials[::-1], "metric": "r2", "best": 5}
    chart = (
        '{% import "components.html" as c %}{{ c.chart("parallel", values, "trials", 320, "/echarts.js") }}'
    )
    body = environment().from_string(chart).render(values=values)
    rows = "".join(f'<tr data-trial="{each["number"]}"><td>{each["number"]}</td></tr>' for each in trials)
    scripts = "".join(f'<script type="module" src="/{name}"></script>' for name in ("charts.js", "result.js"))
    style = '<link rel="stylesheet" href="/app.css">'
    document = f"<!doctype html><title>t</title>{style}<body>{body}<table>{rows}</table>{scripts}"

    def answer(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        if name in static_files():
            file = static_files()[name]
            route.fulfill(body=file.read_bytes(), content_type=MEDIA_TYPES[file.suffix])
        elif name:
            route.fulfill(status=404)
        else:
            policy = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
            route.fulfill(body=document, content_type="text/html", headers=policy)

    page.route("**", answer)
    page.goto("http://page.test/")
    page.wait_for_selector("canvas")
    return page


def test_trials_that_an_axis_selects_are_selected_in_the_leaderboard(served_page: Page):
    box = served_page.locator("[data-chart]").bounding_box()
    assert box is not None
    x = box["x"] + 50
    served_page.mouse.move(x, box["y"] + 40)
    served_page.mouse.down()
    served_page.mouse.move(x, box["y"] + 120, steps=8)
    served_page.mouse.up()
    served_page.wait_for_selector("tr.selected")
    assert [row.inner_text() for row in served_page.query_selector_all("tr.selected")] == ["4"]


def test_charts_follow_the_theme_that_the_user_chose(served_page: Page):
    data = "document.querySelector('canvas').toDataURL()"
    light = served_page.evaluate(data)
    served_page.evaluate("document.documentElement.dataset.theme = 'dark'")
    served_page.wait_for_function(f"(light) => {data} !== light", arg=light)


def test_charts_that_a_refresh_replaces_are_drawn_again(served_page: Page):
    served_page.evaluate(
        """() => { const box = document.querySelector("[data-chart]"); const copy = box.cloneNode(true);
             copy.querySelector(".drawing").remove(); copy.id = "fresh"; box.replaceWith(copy);
             document.dispatchEvent(new Event("chartschanged")); }"""
    )
    served_page.wait_for_selector("#fresh canvas")
    assert min(colored_pixels(served_page)) > 500
