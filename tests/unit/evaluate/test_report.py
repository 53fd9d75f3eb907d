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

from dmls_core.evaluate.report import render_report
from dmls_core.evaluate.report.comparable_trials import comparable_trials, hyperparameter_importances
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
        self.builders: list[str] = []
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
        if "data-chart" in given:
            self.builders.append(given["data-chart"])
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
    def charts(self) -> list[tuple[str, dict[str, Any]]]:
        """The builder and the values of each chart."""
        values = [json.loads(body) for given, body in self.scripts if given.get("type") == "application/json"]
        return list(zip(self.builders, values, strict=True))


def titles(page: str) -> list[str]:
    return [unescape(title) for title in re.findall(r"<figcaption><b>(.*?)</b>", page)]


def test_the_report_is_self_contained_and_its_policy_blocks_everything_else():
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


def test_scores_and_tables_are_readable_without_scripts():
    text = Outline(Case(3).page(TRIALS)).text

    for expected in (
        *("lab/iris", "0.9500", "2 complete, 1 failed", "class 1", "3.11.7", "50 to 500", "species"),
        *("95 % confidence interval", "Baseline (no features)"),
    ):
        assert expected in text


def test_the_report_states_the_size_and_a_sufficient_depth():
    size = {"bytes": 33_100_000, "trees": 60, "nodes": 329_364, "depth": 43, "enough": None}
    expected = "The checkpoint has 33.1 MB: 60 trees with 329,364 nodes and a depth of up to 43."
    assert expected in Outline(Case(3).page(TRIALS, size=size)).text
    size["enough"] = {"max_depth": 17, "nodes": 187_558, "bytes": 18_900_000, "rows": 2000, "trees": 60}
    size["enough"] |= {"score": 0.91, "whole_score": 0.9105}
    assert (
        f"{expected} With max_depth = 17 the trees have 187,558 nodes, about 18.9 MB, without a measurable "
        "loss: 0.9100 instead of 0.9105 on 2,000 held-out rows with 60 trees."
    ) in Outline(Case(3).page(TRIALS, size=size)).text


@pytest.mark.parametrize("classes", [0, 2, 3, 40])
def test_texts_of_users_are_escaped(classes: int):
    case = Case(classes, names=[HOSTILE, HOSTILE + "2"])
    trials = [trial(number, 0.5 + number / 100, message=HOSTILE) for number in range(10)] + [
        trial(10, None, message=HOSTILE)
    ]
    page = case.page(trials, team=HOSTILE, job=HOSTILE, warnings=[HOSTILE], best_params={"a": HOSTILE})
    outline = Outline(page)

    assert outline.open == []
    assert not outline.tags & {"img", "iframe"}
    assert outline.text.count("onerror=alert('x')") >= 6
    # Charts draw texts on a canvas, literally.
    assert "<img src=x" in json.dumps(outline.charts)
    assert "&amp;lt;" not in page


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (2, {"ROC", "Precision and recall", "Calibration"}),
        (5, {"ROC", "Precision and recall", "Calibration"}),
        (40, {"ROC", "Calibration", "Confusion matrix"}),
        (0, {"Predicted against true", "Residuals", "Distribution of the residuals", "Calibration"}),
    ],
)
def test_each_task_has_its_figures(classes: int, expected: set[str]):
    page = Case(classes, rows=400).page(MANY)
    found = set(titles(page))

    common = {
        *("Score of each trial", "Importance of hyperparameters", "Hyperparameters and scores"),
        *("learning_rate", "Importance in the model", "Permutation importance"),
    }
    assert found >= common | expected
    assert any("over n_estimators and max_depth" in title for title in found)
    assert ("Confusion matrix" in page) is (classes > 0)
    assert ("Residuals" in page) is (classes == 0)
    assert len(Outline(page).charts) == len(titles(page))


def score_map(page: str) -> dict[str, Any]:
    return next(values for builder, values in Outline(page).charts if builder == "score_map")


def test_the_score_map_places_each_configuration():
    values = score_map(Case(3).page([trial(0, 0.8, surface=surface(0.8))]))

    assert (values["columns"], values["rows"]) == (["50", "100", "200"], ["4", "8", "none"])
    # The last axis of the surface, max_depth, ran fastest: its rows are the map's.
    assert values["scores"] == [[0.8, 0.77, 0.74], [0.79, 0.76, 0.73], [0.78, 0.75, 0.72]]
    assert values["star"] == [0, 0]
    assert values["ring"] is None


def test_sizes_outside_the_search_space_are_not_drawn():
    below = surface(0.8)
    below["axes"]["n_estimators"][0] = 8
    values = score_map(Case(3).page([trial(0, 0.8, surface=below)]))

    assert values["columns"] == ["100", "200"]
    assert [len(row) for row in values["scores"]] == [2, 2, 2]


def test_the_score_map_rings_the_selected_configuration():
    selected = trial(0, 0.8, surface=surface(0.8), params={"n_estimators": 100, "max_depth": "none"})
    page = Case(3).page([selected])
    values = score_map(page)

    assert (values["star"], values["ring"]) == ([0, 0], [1, 2])
    assert "The ring is the selected configuration" in page


def test_forests_that_were_given_up_are_compared_with_as_many_trees():
    """Each setting of the other axes counts, at the largest size that every trial has reached."""
    trials = [trial(0, 0.9, surface=surface(0.9), params={"criterion": "gini", "n_estimators": 200})]
    short = surface(0.7)
    short["axes"]["n_estimators"], short["values"] = short["axes"]["n_estimators"][:1], short["values"][:3]
    trials.append(
        trial(1, 0.7, state="pruned", surface=short, params={"criterion": "entropy", "n_estimators": 50})
    )

    found = comparable_trials(trials, "maximize", forests=True)

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

    found = comparable_trials(trials, "maximize", forests=False)

    assert [one["value"] for one in found.trials] == [0.5, 0.6, 0.7]
    assert found.note


def test_trials_that_all_ended_are_compared_as_they_are():
    trials = [trial(number, number / 10) for number in range(3)]

    found = comparable_trials(trials, "maximize", forests=True)

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

    assert {"Importance of hyperparameters", "Hyperparameters and scores"} <= set(titles(page))


@pytest.mark.parametrize(("direction", "first"), [("maximize", 1), ("minimize", 0)])
def test_the_best_trial_comes_first_and_what_was_given_up_last(direction: str, first: int):
    given_up = trial(3, 0.5 if direction == "minimize" else 0.99, state="pruned")
    page = Case(3).page([*TRIALS, given_up], direction=direction)

    rows = re.findall(r'<tr(.*?)><td.*?>(\d?)</td><td class="n">(\d)</td><td class="n">0\.', page)
    best = ' class="best"'
    assert rows == [(best, "1", str(first)), ("", "2", str(1 - first)), (' class="muted"', "", "3")]
    assert "2 complete, 1 pruned, 1 failed" in page


def test_trials_with_one_configuration_share_a_row():
    page = Case(3).page([*TRIALS, trial(3, 0.95, same_as=1, state="pruned")])

    assert "1 of them repeat the configuration of another one" in page
    assert '<td class="n">1, 3</td>' in page
    assert len(re.findall(r'<td class="n">0\.9500</td>', page)) == 1


def test_the_report_says_why_trials_are_missing():
    case = Case(3)
    result = case.result() | {"shortfall": "the search ended after 4 of 20 trials, by timeout"}
    page = render_report(result, spec(), TRIALS, case.diagnostics())

    assert "1 failed. The search ended after 4 of 20 trials, by timeout." in Outline(page).text


def test_several_models_have_separate_figures():
    trials = [
        trial(
            number, 0.5 + number / 100, model="xgboost-classifier" if number % 2 else "extra-trees-classifier"
        )
        for number in range(20)
    ]
    page = Case(3).page(trials)

    assert '<th scope="col">model</th>' in page
    assert titles(page).count("Hyperparameters and scores") == 2


def test_a_single_trial_has_no_history():
    page = Case(3).page([trial(0, 0.9)])

    assert "Score of each trial" not in page
    assert "1 trial: 1 complete" in page


def test_the_report_stays_small():
    case = Case(3, features=5_000, rows=60)
    many = [trial(number, 0.5 + (number % 97) / 200) for number in range(2_000)]

    page = case.page(many)

    assert len(Case(3, features=13, rows=178).page(TRIALS)) < 800_000
    assert len(page) < 1_500_000
    assert "4,975 less important features are not shown" in page
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


def test_few_trials_have_no_importances():
    assert not hyperparameter_importances([trial(0, 0.5)] * 3, ["n_estimators"], frozenset(), "maximize")


def test_the_report_compares_champion_and_challenger():
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
        "conclusive": True,
        "reason": "the challenger is better by 0.12",
    }
    outline = Outline(Case(3).page(TRIALS, comparison=comparison))
    expected = (
        "Champion and challenger",
        "champion, version 4: accuracy",
        "0.8100",
        "0.9300",
        "The challenger is better by 0.12",
    )
    for words in expected:
        assert words in outline.text
    assert "Improvement over the champion" in Case(3).page(TRIALS, comparison=comparison)

    unclear = comparison | {"conclusive": False, "better": False, "reason": "which one is better is unknown"}
    page = Case(3).page(TRIALS, comparison=unclear)
    assert "Which one is better is unknown" in Outline(page).text
    assert "Improvement over the champion" not in page

    refused = comparison | {"comparable": False, "interval": None, "reason": f"not comparable: {HOSTILE}"}
    page = Case(3).page(TRIALS, comparison=refused)
    assert HOSTILE not in page
    assert "Not comparable:" in Outline(page).text
    assert "Champion and challenger" not in Case(3).page(TRIALS, comparison=None)
