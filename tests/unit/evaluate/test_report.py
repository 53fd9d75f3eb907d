"""The report page."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from dmls_core.evaluate.report import parts, render_report
from dmls_core.evaluate.report.equal_terms import on_equal_terms
from dmls_core.evaluate.report.importance import hyperparameter_importances
from dmls_core.evaluate.report.leaderboard import scored_by
from dmls_core.evaluate.report.scale import Scale
from tests.unit.evaluate.evidence import HOSTILE, Case, spec, surface, trial

VOID = {"meta", "br"}
TRIALS = [trial(0, 0.91), trial(1, 0.95), trial(2, None, message=HOSTILE)]
MANY = [trial(number, 0.5 + 0.3 * ((7 * number) % 20) / 20, surface=surface(0.8)) for number in range(20)]


class Outline(HTMLParser):
    """Reads a page as a browser does: what is text, what is markup, what is a script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.policy = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        assert not [name for name in given if name == "src" or name.startswith("on")]
        assert given.get("href", "#").startswith("#")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag == "script":
            self.scripts.append((given, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif "style" not in self.open:
            self.text += f" {data}"

    @property
    def figures(self) -> dict[str, Any]:
        return json.loads(next(body for given, body in self.scripts if given.get("id") == "figures"))


def titles(page: str) -> list[str]:
    return [unescape(title) for title in re.findall(r"<figcaption><b>(.*?)</b>", page)]


def test_the_page_is_whole_and_its_policy_lets_nothing_in_or_out():
    page = Case(3).page(TRIALS)
    outline = Outline(page)

    assert outline.open == []
    assert not outline.tags & {"link", "img", "iframe", "form", "object", "base"}
    running = [body for given, body in outline.scripts if given.get("type") != "application/json"]
    hashes = [f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in running]
    assert len(running) == 2
    assert outline.policy.startswith("default-src 'none'; script-src ")
    assert f"script-src {' '.join(hashes)};" in outline.policy
    assert "unsafe-eval" not in outline.policy
    assert "http" not in outline.policy


def test_what_matters_is_readable_without_scripts():
    text = Outline(Case(3).page(TRIALS)).text

    for expected in (
        *("lab/iris", "0.9500", "2 complete, 1 failed", "class 1", "3.11.7", "50 to 500", "species"),
        *("95 % confidence interval", "A model that knows no feature"),
    ):
        assert expected in text


def test_the_size_is_told_and_a_depth_is_offered_where_one_would_do():
    size = {"bytes": 33_100_000, "trees": 60, "nodes": 329_364, "depth": 43, "enough": None}
    told = "The checkpoint has 33.1 MB: 60 trees with 329,364 nodes, up to 43 deep."
    assert told in Outline(Case(3).page(TRIALS, size=size)).text
    size["enough"] = {"max_depth": 17, "nodes": 187_558, "bytes": 18_900_000, "rows": 2000, "trees": 60}
    size["enough"] |= {"score": 0.91, "whole_score": 0.9105}
    assert (
        f"{told} Cut at depth 17 they have 187,558 nodes, about 18.9 MB, and lose nothing that can be "
        "measured: 0.9100 instead of 0.9105 on 2,000 rows held out, with 60 trees."
    ) in Outline(Case(3).page(TRIALS, size=size)).text


@pytest.mark.parametrize("classes", [0, 2, 3, 40])
def test_whatever_the_user_wrote_is_text(classes: int):
    case = Case(classes, names=[HOSTILE, HOSTILE + "2"])
    trials = [trial(number, 0.5 + number / 100, message=HOSTILE) for number in range(10)] + [
        trial(10, None, message=HOSTILE)
    ]
    page = case.page(trials, team=HOSTILE, job=HOSTILE, warnings=[HOSTILE], best_params={"a": HOSTILE})
    outline = Outline(page)

    assert outline.open == []
    assert not outline.tags & {"img", "iframe"}
    assert outline.text.count("onerror=alert('x')") >= 6
    # Plotly reads some HTML in texts: there, too, it must be escaped.
    assert "<a" not in json.dumps(outline.figures)
    assert "<img" not in json.dumps(outline.figures)
    assert "&lt;img" in json.dumps(outline.figures)
    assert "&amp;lt;" not in page


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (2, {"ROC", "Precision and recall", "Calibration"}),
        (5, {"ROC", "Precision and recall", "Calibration"}),
        (40, {"ROC", "Calibration", "Confusion matrix"}),
        (0, {"Predicted against true", "Residuals", "How large the residuals are", "Calibration"}),
    ],
)
def test_each_task_has_its_figures(classes: int, expected: set[str]):
    page = Case(classes, rows=400).page(MANY)
    found = set(titles(page))

    common = {"Score of each trial", "What mattered in the search", "Settings and scores", "learning_rate",
              "The model's own importance", "Permutation importance"}  # fmt: skip
    assert found >= common | expected
    assert any("over n_estimators and max_depth" in title for title in found)
    assert ("Confusion matrix" in page) is (classes > 0)
    assert ("Residuals" in page) is (classes == 0)
    assert len(Outline(page).figures) == len(titles(page))


def test_the_map_shows_each_setting_where_it_belongs():
    page = Case(3).page([trial(0, 0.8, surface=surface(0.8))])
    figure = next(
        figure for figure in Outline(page).figures.values() if figure["data"][0]["type"] == "heatmap"
    )

    heat, star = figure["data"]
    assert (heat["x"], heat["y"]) == (["50", "100", "200"], ["4", "8", "none"])
    # The last axis of the surface, max_depth, ran fastest: its rows are the map's.
    assert heat["z"] == [[0.8, 0.77, 0.74], [0.79, 0.76, 0.73], [0.78, 0.75, 0.72]]
    assert (star["x"], star["y"]) == (["50"], ["4"])


def test_sizes_that_were_not_asked_for_are_not_drawn():
    below = surface(0.8)
    below["axes"]["n_estimators"][0] = 8
    figures = Outline(Case(3).page([trial(0, 0.8, surface=below)])).figures.values()

    heat = next(figure["data"][0] for figure in figures if figure["data"][0]["type"] == "heatmap")
    assert heat["x"] == ["100", "200"]
    assert [len(row) for row in heat["z"]] == [2, 2, 2]


def test_the_map_says_what_was_taken_where_that_is_not_its_best():
    taken = trial(0, 0.8, surface=surface(0.8), params={"n_estimators": 100, "max_depth": "none"})
    page = Case(3).page([taken])
    traces = next(
        figure["data"] for figure in Outline(page).figures.values() if figure["data"][0]["type"] == "heatmap"
    )

    assert [(one["x"], one["y"]) for one in traces[1:]] == [(["50"], ["4"]), (["100"], ["none"])]
    assert "The ring is what was taken" in page


def test_forests_that_were_given_up_are_compared_with_as_many_trees():
    """Each setting of the other axes counts, at the largest size that every trial has reached."""
    trials = [trial(0, 0.9, surface=surface(0.9), params={"criterion": "gini", "n_estimators": 200})]
    short = surface(0.7)
    short["axes"]["n_estimators"], short["values"] = short["axes"]["n_estimators"][:1], short["values"][:3]
    trials.append(
        trial(1, 0.7, state="pruned", surface=short, params={"criterion": "entropy", "n_estimators": 50})
    )

    found = on_equal_terms(trials, "maximize", forests=True)

    assert [(one["number"], one["params"]["max_depth"]) for one in found.settings] == [
        (number, depth) for number in (0, 1) for depth in (4, 8, "none")
    ]
    assert [(one["params"]["criterion"], one["value"]) for one in found.trials] == [
        ("gini", 0.9),
        ("entropy", 0.7),
    ]
    assert "50 trees" in found.note


def test_other_trials_are_compared_as_they_stood_when_the_first_were_given_up():
    trials = [
        trial(
            number,
            0.9,
            state="pruned" if number else "complete",
            intermediate_values=[0.5 + number / 10, 0.9],
        )
        for number in range(3)
    ]

    found = on_equal_terms(trials, "maximize", forests=False)

    assert [one["value"] for one in found.trials] == [0.5, 0.6, 0.7]
    assert found.note


def test_trials_that_all_ended_are_compared_as_they_are():
    trials = [trial(number, number / 10) for number in range(3)]

    found = on_equal_terms(trials, "maximize", forests=True)

    assert found.trials == trials
    assert not found.note


def test_a_search_with_one_finished_trial_still_explains_itself():
    trials = [
        trial(
            number,
            0.9 if number else 0.95,
            state="pruned" if number else "complete",
            surface=surface(0.7 + number / 100),
            params={"criterion": ["gini", "entropy"][number % 2], "max_features": number / 10},
        )
        for number in range(9)
    ]

    page = Case(3).page(trials)

    assert {"What mattered in the search", "Settings and scores"} <= set(titles(page))


@pytest.mark.parametrize(("direction", "first"), [("maximize", 1), ("minimize", 0)])
def test_the_best_trial_comes_first_and_what_was_given_up_last(direction: str, first: int):
    given_up = trial(3, 0.5 if direction == "minimize" else 0.99, state="pruned")
    page = Case(3).page([*TRIALS, given_up], direction=direction)

    rows = re.findall(r'<tr.*?><td class="n">(\d)</td><td class="n">(\d)</td><td class="n">0\.', page)
    assert rows == [("1", str(first)), ("2", str(1 - first)), ("3", "3")]
    assert "2 complete, 1 pruned, 1 failed" in page


def test_repeats_are_counted_and_not_listed():
    page = Case(3).page([*TRIALS, trial(3, 0.95, same_as=1, state="pruned")])

    assert "1 of them repeat another" in page
    assert len(re.findall(r'<td class="n">0\.9500</td>', page)) == 1


@pytest.mark.parametrize(
    ("search", "why"), [({}, "for."), ({"timeout": 4.0}, "for: the search was ended by timeout.")]
)
def test_the_page_says_that_trials_are_missing_and_what_ended_the_search(search: dict[str, Any], why: str):
    case = Case(3)
    given = spec()
    given["search"] |= search
    page = render_report(case.result(), given, TRIALS, case.insight())

    assert f"20 were asked {why}" in Outline(page).text


@pytest.mark.parametrize(
    ("values", "forest", "bags", "said"),
    [
        ([0.9], True, True, "out-of-bag rows"),
        ([0.9], True, False, "the first of 3 folds"),
        ([0.8, 0.9, 1.0], True, True, "3 folds, in the mean"),
        ([0.9], False, True, "3 folds, in the mean"),
    ],
)
def test_the_page_says_which_rows_scored(values: list[float], forest: bool, bags: bool, said: str):
    assert scored_by([trial(0, 0.9, values=values)], forest=forest, bags=bags, folds=3).startswith(said)
    often = scored_by([trial(0, 0.9, values=values)], forest=forest, bags=bags, folds=3, often=True)
    assert ("too often" in often) == (said == "out-of-bag rows")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5000"), (33_890.796, "33,891"), (345.678, "345.68"), (3.1142e-07, "3.114e-07"), (12, "12")],
)
def test_numbers_have_as_many_digits_as_tell_something(value: float, text: str):
    assert parts.number(value) == text


def test_settings_keep_their_kind_and_names_their_ends():
    assert [str(parts.setting(value)) for value in (1.0, 1, 0.06901651, None, True)] == [
        *("1.0", "1", "0.06902", "none", "True"),
    ]
    assert parts.cut("sensor number 17", 11) == "senso…er 17"


def test_the_matrix_of_long_names_counts_its_columns():
    labels = [f"department of affairs {letter}" for letter in "abcdefg"]
    html = parts.matrix(labels, [[1] * 7] * 7)

    assert re.findall(r">(\d)</th>", html) == list("1234567")
    assert html.count("department of affairs g") == 3
    assert ">no</th>" in parts.matrix(["no", "yes"], [[1, 0], [0, 1]])


def test_several_models_are_told_apart():
    trials = [
        trial(
            number, 0.5 + number / 100, model="xgboost-classifier" if number % 2 else "extra-trees-classifier"
        )
        for number in range(20)
    ]
    page = Case(3).page(trials)

    assert '<th scope="col">model</th>' in page
    assert titles(page).count("Settings and scores") == 2


def test_a_single_trial_has_no_history():
    page = Case(3).page([trial(0, 0.9)])

    assert "Score of each trial" not in page
    assert "1 trial: 1 complete" in page


def test_the_page_stays_small():
    case = Case(3, features=5_000, rows=60)
    bare = len(case.page(TRIALS))
    many = [trial(number, 0.5 + (number % 97) / 200) for number in range(2_000)]

    page = case.page(many)

    assert len(page) - bare < 1_000_000
    assert "4,975 features of less importance are not shown" in page
    assert "190 more trials" in page


def test_importances_find_what_matters():
    trials = [trial(number, 1.0 - abs(number % 10 - 4) / 10) for number in range(60)]
    for number, data in enumerate(trials):
        data["params"] = {
            "depth": number % 10,
            "idle": (number * 7) % 11,
            "word": "ab"[number % 2],
            "same": 1,
        }

    shares = hyperparameter_importances(trials, ["depth", "idle", "word", "same"], frozenset(), "maximize")

    assert next(iter(shares)) == "depth"
    assert shares["depth"] > 0.5
    assert "same" not in shares
    assert sum(shares.values()) == pytest.approx(1)


def test_few_trials_tell_nothing_of_importance():
    assert not hyperparameter_importances([trial(0, 0.5)] * 3, ["n_estimators"], frozenset(), "maximize")


def test_settings_stand_where_they_belong():
    by_log = Scale([0.001, 0.01, 0.1, 0.001], log=True)
    words = Scale(["sqrt", 0.5, True], log=False)

    assert [by_log(value) for value in (0.001, 0.01, 0.1)] == [0, 0.5, 1]
    assert by_log.ticks()[0] == (0, "0.001")
    assert [words(value) for value in (0.5, True, "sqrt")] == [0, 0.5, 1]
    assert Scale([3], log=False)(3) == 0.5


def test_the_champion_is_shown_beside_the_challenger_where_there_is_one():
    comparison = {
        "metric": "accuracy",
        "champion_version": 4,
        "champion_score": 0.81,
        "challenger_score": 0.93,
        "difference": 0.12,
        "interval": [0.07, 0.17],
        "probability": 0.995,
        "min_improvement": 0.01,
        "rows": 240,
        "comparable": True,
        "better": True,
        "reason": "the challenger is better by 0.12",
        "note": "The champion was trained on none of these rows.",
    }
    outline = Outline(Case(3).page(TRIALS, comparison=comparison))
    told = ("Against the champion", "champion, version 4: accuracy", "0.8100", "0.9300", "none of these rows")
    for words in told:
        assert words in outline.text
    assert "Improvement over the champion" in Case(3).page(TRIALS, comparison=comparison)

    refused = comparison | {"comparable": False, "interval": None, "reason": f"not comparable: {HOSTILE}"}
    page = Case(3).page(TRIALS, comparison=refused)
    assert HOSTILE not in page
    assert "Not comparable:" in Outline(page).text
    assert "Against the champion" not in Case(3).page(TRIALS, comparison=None)
