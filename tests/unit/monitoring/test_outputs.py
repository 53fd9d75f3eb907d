"""The page and the metrics say what was found, whatever the columns are called."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from dmls_core.monitoring import Values, compare, drift_page, metrics_text
from dmls_core.monitoring.profile import profile_of

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


def test_the_page_runs_nothing_and_loads_nothing(drift):
    page = drift_page(drift, f"team/{HOSTILE}")
    elements = Elements()
    elements.feed(page)
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"script", "img", "link", "iframe", "object", "a"}
    attributes = {name for _, attrs in elements.found for name in attrs}
    assert not {name for name in attributes if name.startswith("on")} | attributes & {"src", "href"}
    assert "default-src 'none'" in page
    page.encode(errors="replace")


def test_the_page_shows_what_drifted_first_and_plots_it(drift):
    page = drift_page(drift, "lab/iris")
    assert "2 of 3 columns drifted in 500 rows" in page
    assert page.count("<svg") == 3
    assert "Not in the new data, so not compared: gone" in page
    body = page.partition("<tbody>")[2]
    assert body.index(">drifted<") < body.index(">steady<")


def test_every_bar_fits_its_plot(drift):
    heights = [
        float(height) for height in re.findall(r'<rect [^>]*height="([\d.]+)"', drift_page(drift, "x"))
    ]
    assert heights
    assert max(heights) == 120.0


def test_metrics_are_text_that_prometheus_reads(drift):
    text = metrics_text(drift, "lab", "iris", "data")
    series = [line for line in text.splitlines() if not line.startswith("#")]
    pattern = r'[a-z_]+\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\} -?[0-9.e+-]+'
    assert [line for line in series if not re.fullmatch(pattern, line)] == []
    assert 'dmls_drift_detected{team="lab",job="iris",source="data"} 1' in series
    assert 'dmls_drift_columns_drifted{team="lab",job="iris",source="data"} 2' in series
    assert sum(line.startswith("dmls_drift_psi{") for line in series) == 3
    text.encode()
