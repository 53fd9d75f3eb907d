from __future__ import annotations

import json
import math
import re
import shlex
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from dmls_core.data.encoder import CategoryFeature, Encoder, Target
from dmls_core.serving.predict.card import (
    CARD,
    MAX_COLUMNS,
    SHOWN,
    _missing_category,
    card_of_deployed,
    write_card,
)
from dmls_core.serving.triton.tensors import forest_request, table_request
from tests.support.model_folder import toy_model_folder
from tests.support.trained_run import spec_json

NASTY = "<script>alert(\"1\")</script> '$(touch x)'"


class Page(HTMLParser):
    """Collects tags and texts; whatever a user wrote must be text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


def result(**changes):
    base = {
        "team": "lab",
        "job": "iris",
        "run_key": "0123456789abcdef",
        "spec_sha256": "ab" * 32,
        "model": "random-forest-classifier",
        "engine": "cpu",
        "metric": "accuracy",
        "cv_score": 0.95,
        "best_params": {"n_estimators": 10, "max_depth": None},
        "data": {"rows": 1500, "train_rows": 1200, "holdout_rows": 300, "hash": "cd" * 32},
        "holdout": {"metrics": {"accuracy": 0.94125, "log_loss": 0.3, "roc_auc": None}},
        "versions": {"treelite": "4.8.0"},
        "finished": "2026-01-02T03:04:05+00:00",
    }
    return base | changes


def card(tmp_path, *, encoder=None, owner=None, ranges=None, **changes):
    folder = toy_model_folder(tmp_path / "model")
    if encoder is not None:
        (folder / "encoder.json").write_text(json.dumps(encoder.as_json()))
        columns = {name: ["x", "y"] for name in encoder.feature_names}
        golden = {"columns": columns, "encoded": encoder.transform(columns).tolist()}
        (folder / "golden.json").write_text(json.dumps(golden))
    about = json.loads((folder / "model.json").read_text()) | {"ranges": ranges or {}}
    (folder / "model.json").write_text(json.dumps(about))
    write_card(folder, result(**changes), spec_json() | {"owner": owner})
    return (folder / CARD).read_text()


def test_a_card_says_what_a_caller_needs(tmp_path):
    text = card(
        tmp_path,
        owner={"name": "Ada", "email": "ada@example.org"},
        ranges={"length": [0.25, 7.5]},
    )
    page = " ".join(Page(text).texts)
    for wanted in (
        "lab.iris",
        "Ada <ada@example.org>",
        '"setosa", "versicolor", "virginica"',
        "0.25 to 7.5",
        "becomes 0",
        "0.94125",
        "not defined",
        "cd" * 32,
        "1,200 for training, 300 held out",
        "dmls predict lab/iris",
        "8,192 rows",
    ):
        assert wanted in page


def test_the_requests_of_a_card_are_those_of_the_first_golden_row(tmp_path):
    text = card(tmp_path)
    golden = json.loads((tmp_path / "model/golden.json").read_text())
    assert all(len(text) < 9 for text in re.findall(r'"data": \[([^,\]]*)\]', unescape(text)))
    curls = [shlex.split(unescape(code)) for code in re.findall(r"<pre>(curl.*?)</pre>", text, re.DOTALL)]
    table, forest = (json.loads(words[-1]) for words in curls)
    assert {i["name"]: np.float32(i["data"]) for i in table["inputs"]} == {
        name: np.float32(values[:1]) for name, values in golden["columns"].items()
    }
    (tensor,) = forest["inputs"]
    assert np.array_equal(np.float32(tensor["data"]), np.float32(golden["encoded"][0]))
    assert [words[1] for words in curls] == [
        "http://$TRITON/v2/models/lab.iris.table/infer",
        "http://$TRITON/v2/models/lab.iris/infer",
    ]


def test_whatever_a_user_wrote_stays_text(tmp_path):
    category = {"kind": "category", "categories": [NASTY, "x"], "missing": None, "unknown": -1.0}
    encoder = Encoder.from_json(
        {
            "schema": 1,
            "features": [{"name": NASTY, **category}],
            "target": {"name": NASTY, "kind": "label", "labels": [NASTY, "b"]},
        }
    )
    text = card(tmp_path, encoder=encoder, owner={"name": NASTY}, best_params={NASTY: NASTY})
    page = Page(text)
    assert "script" not in page.tags
    assert sum(NASTY in part for part in page.texts) >= 4
    (curl,) = re.findall(r"<pre>(curl [^<]*table/infer.*?)</pre>", text, re.DOTALL)
    assert json.loads(shlex.split(unescape(curl))[-1])["inputs"][0]["name"] == NASTY


def test_other_parameters_than_the_tuned_ones_are_folded(tmp_path):
    text = card(tmp_path, best_params={"n_estimators": 10, "bootstrap": True}, tuned=["n_estimators"])
    shown, _, folded = text.partition("<details>")
    assert ("n_estimators" in shown, "bootstrap" in shown) == (True, False)
    assert "All other parameters (1)" in folded
    assert "bootstrap" in folded


def test_long_lists_are_cut(tmp_path):
    names = [f"c{i:03d}" for i in range(100)]
    category = {"kind": "category", "categories": names, "missing": -1.0, "unknown": -1.0}
    encoder = Encoder.from_json(
        {
            "schema": 1,
            "features": [{"name": "code", **category}],
            "target": {"name": "y", "kind": "number"},
        }
    )
    text = card(tmp_path, encoder=encoder)
    assert f"and {100 - SHOWN} more" in text
    assert "c099" not in text
    assert "a number" in text


def test_the_card_of_a_deployed_model_has_a_section_on_serving(tmp_path):
    text = card_of_deployed(card(tmp_path), {"Version": 3, NASTY: "x"})
    texts = Page(text).texts
    assert texts.index("Libraries") < texts.index("Serving") < texts.index("3")
    assert "script" not in Page(text).tags
    assert text.endswith("</html>\n")


@pytest.mark.parametrize("value", [None, "", "NA", float("nan")])
def test_missing_values_in_requests(value):
    encoder = Encoder.from_json(
        {
            "schema": 1,
            "features": [
                {"name": "n", "kind": "number", "fill": None},
                {"name": "c", "kind": "category", "categories": ["1"], "missing": None, "unknown": -1.0},
            ],
            "target": {"name": "y", "kind": "number"},
        }
    )
    text = table_request(encoder, {"n": [value, "2"], "c": [value, 1.0]})
    assert '"data": [NaN, 2.0]' in text
    assert '"data": ["", "1"]' in text
    assert '"shape": [2, 2], "data": [NaN, 1.0, 2.0, NaN]' in forest_request([[None, 1.0], [2.0, None]])


def test_a_compacted_model_shows_its_size_before_and_after(tmp_path):
    before = {
        "trees": 500,
        "depth": 20,
        "nodes": 123_456,
        "bytes": 9_000_000,
        "latency_ms": 0.25,
        "score": 0.95,
    }
    after = {"trees": 63, "depth": 8, "nodes": 4_321, "bytes": 300_000, "latency_ms": 0.0314, "score": 0.9475}
    texts = Page(card(tmp_path, compact={"before": before, "after": after, "rows": 900})).texts
    for shown in ("123,456", "4,321", "9,000,000", "300,000", "0.25", "0.0314", "0.95", "0.9475"):
        assert shown in texts
    assert "Compaction" in texts
    assert "Compaction" not in Page(card(tmp_path / "other", compact=None)).texts


def test_an_ensemble_shows_its_members(tmp_path):
    size = {"trees": 90, "depth": 9, "nodes": 800, "bytes": 70_000, "latency_ms": 0.05, "score": 0.9375}
    members = [
        {"model": "lightgbm-regressor", "trial": 14, "weight": 0.75, "trees": 60, "params": {"max_bin": 63}},
        {"model": "xgboost-regressor", "trial": 3, "weight": 0.25, "trees": 40, "params": {"eta": 0.0625}},
    ]
    found = {"members": members, "before": size, "after": {**size, "trees": 100, "score": 0.953125}}
    texts = Page(card(tmp_path, ensemble=found)).texts
    for shown in (
        "Ensemble",
        "xgboost-regressor",
        "14",
        "0.75",
        "eta = 0.0625",
        "0.9375",
        "0.953125",
        "Best trial alone",
    ):
        assert shown in texts
    assert "Tuned parameters of the best trial" in " ".join(texts)
    assert "Ensemble" not in Page(card(tmp_path / "other", ensemble=None)).texts


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        ((-1.0, -1.0), "like an unknown category"),
        ((math.nan, -1.0), "stays missing"),
        ((3.0, 2.0), "a category of its own"),
    ],
)
def test_what_a_missing_category_becomes(codes, text):
    assert _missing_category(CategoryFeature("c", ("a", "b"), *codes)) == text


def test_the_card_of_a_wide_model_lists_what_matters(tmp_path):
    names = [f"c{number:03}" for number in range(MAX_COLUMNS + 50)]
    encoder = Encoder(
        tuple(CategoryFeature(name, ("x", "y"), math.nan, -1.0) for name in names),
        Target("kind", ("a", "b")),
    )
    importances = {name: float(number) for number, name in enumerate(names)}
    text = card(tmp_path, encoder=encoder, importances=importances)
    assert set(re.findall(r"\bc\d{3}\b", text)) == set(names[50:])
    assert f"The {MAX_COLUMNS} most important of {MAX_COLUMNS + 50} columns" in text
    assert "read_csv" in text
    assert "curl" not in text
