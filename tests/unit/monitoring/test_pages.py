"""The monitor's pages show the findings, whatever the columns are called, and run nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from dmls_core.monitoring.drift import compare
from dmls_core.monitoring.pages import decay_page, drift_page
from dmls_core.monitoring.profile import Values, profile_of

HOSTILE = "</style><script>alert(1)</script>\"'&{{7*7}}\n\\ \ud800\u202e"


@pytest.fixture(scope="module")
def drift():
    draw = np.random.default_rng(0)
    texts = ("fine", f"<img src=x onerror=alert(1)>{HOSTILE}")
    old = [
        Values(HOSTILE, "feature", draw.normal(size=500)),
        Values("k", "feature", draw.integers(0, 2, 500).astype(float), texts),
        Values("same", "feature", draw.normal(size=500)),
        Values("gone", "feature", draw.normal(size=500)),
    ]
    new = [
        Values(HOSTILE, "feature", draw.normal(size=500) + 2),
        Values("k", "feature", np.ones(500), texts),
        Values("same", "feature", draw.normal(size=500)),
    ]
    return compare(profile_of(old, 500), {(v.role, v.name): v for v in new}, 500, 0.2)


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_drift_page_runs_nothing_and_loads_nothing(drift):
    page = drift_page(drift, f"team/{HOSTILE}")
    elements = Elements()
    elements.feed(page)
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"script", "img", "link", "iframe", "object", "a"}
    attributes = {name for _, attrs in elements.found for name in attrs}
    assert not {name for name in attributes if name.startswith("on")} | attributes & {"src", "href"}
    assert "default-src 'none'" in page
    page.encode(errors="replace")


def test_drifted_columns_come_first_and_are_plotted(drift):
    page = drift_page(drift, "lab/iris")
    assert "2 of 3 columns drifted in 500 rows" in page
    assert page.count("<svg") == 3
    assert "Missing from the new data and not compared: gone" in page
    body = page.partition("<tbody>")[2]
    assert body.index(">drifted<") < body.index(">steady<")
    assert "significant at a false discovery rate of 0.001" in page


def test_every_bar_fits_its_plot(drift):
    heights = [
        float(height) for height in re.findall(r'<rect [^>]*height="([\d.]+)"', drift_page(drift, "x"))
    ]
    assert heights
    assert max(heights) == 120.0


def decay_document(**changes):
    version = {
        "version": 3,
        "verdict": "decayed",
        "metric": "accuracy",
        "rows": 300,
        "score": 0.8,
        "interval": [0.75, 0.85],
        "trained_score": 0.9,
        "trained_interval": None,
        "p_value": 1e-5,
    }
    point = version | {"at": "2026-02-01"}
    document = {
        "team": "lab",
        "job": "iris",
        "verdict": "decayed",
        "message": f"the model has decayed {HOSTILE}",
        "at": "2026-02-01",
        "labels": 900,
        "matched": 600,
        "notes": [HOSTILE],
        "versions": [version, version | {"version": 2, "score": None, "interval": None, "p_value": None}],
        "history": [point, point | {"interval": None, "verdict": "steady"}],
    }
    return document | changes


def test_the_decay_page_shows_versions_and_draws_their_history():
    page = decay_page(decay_document(), "a rule")
    elements = Elements()
    elements.feed(page)
    assert not {tag for tag, _ in elements.found} & {"script", "img", "a"}
    assert "600 of 900 labels belong to logged predictions" in page
    assert "0.8 (0.75 to 0.85)" in page
    assert page.count("<circle") == 2
    page.encode(errors="replace")


def test_a_decay_page_without_history_has_no_plot():
    assert "<svg" not in decay_page(decay_document(history=[]), "a rule")
