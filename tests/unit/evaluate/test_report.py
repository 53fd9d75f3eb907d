"""The report page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from dmls_core.evaluate.report import render_report

HOSTILE = "<script>alert('x')</script>\"&"


def result(**changes: Any) -> dict[str, Any]:
    return {
        "team": "lab",
        "job": "iris",
        "run_key": "0123456789abcdef",
        "model": "random-forest-classifier",
        "engine": "cpu",
        "metric": "accuracy",
        "direction": "maximize",
        "score": 0.9667,
        "cv_score": 0.95,
        "n_trials": 2,
        "labels": ["setosa", HOSTILE],
        "features": ["width", HOSTILE],
        "importances": {"width": 0.25, HOSTILE: 0.75},
        "holdout": {"metrics": {"accuracy": 0.9667}, "confusion": [[8, 2], [0, 20]], "residuals": None},
        "best_params": {"criterion": "gini", "max_depth": None},
        "seconds": {"search": 1.5, "total": 3.25},
        "data": {"rows": 150, "train_rows": 120, "holdout_rows": 30, "hash": "ab" * 32},
        "versions": {"python": "3.11.7"},
    } | changes


TRIALS = [
    {"number": 0, "value": 0.91, "params": {"criterion": HOSTILE}, "seconds": 1.0},
    {"number": 1, "value": 0.95, "params": {"criterion": "gini"}, "seconds": 2.0},
    {"number": 2, "value": None, "params": {"criterion": "gini"}, "seconds": 0.1},
]


class Outline(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        assert not [value for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def test_the_page_is_whole_and_needs_nothing_from_the_network():
    page = render_report(result(), TRIALS)
    outline = Outline(page)

    assert outline.open == []
    assert not outline.tags & {"script", "link", "img", "iframe"}
    assert "http" not in page
    for text in ("lab/iris", "0.9667", "0.9500", "1 of 3 trials failed", "setosa", "75.0%", "3.11.7"):
        assert text in outline.text


def test_whatever_the_user_wrote_is_text():
    page = render_report(result(team=HOSTILE, job=HOSTILE), TRIALS)

    assert "<script" not in page
    assert Outline(page).text.count("alert('x')") >= 5


def test_the_best_trial_comes_first():
    for direction, first in (("maximize", 1), ("minimize", 0)):
        page = render_report(result(direction=direction), TRIALS)
        rows = re.findall(r'<tr><td class="n">(\d+)</td><td class="n">0\.9', page)
        assert int(rows[0]) == first


@pytest.mark.parametrize("classes", [3, 40])
def test_many_classes_leave_the_matrix_out(classes: int):
    holdout = result()["holdout"] | {"confusion": [[1] * classes] * classes}
    page = render_report(result(labels=[f"c{i}" for i in range(classes)], holdout=holdout), TRIALS)

    assert ("Confusion" in page) is (classes == 3)


def test_a_regression_shows_residuals():
    holdout = {"metrics": {"r2": 0.5}, "confusion": None, "residuals": [-3.0, -2, -1, 0, 1, 2, 3.5]}
    page = render_report(result(labels=None, holdout=holdout, metric="r2"), TRIALS)

    assert "Residuals" in page
    assert "3.5000" in page
