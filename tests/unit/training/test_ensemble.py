"""Ensembles of trials: what is chosen, on which rows, and what it costs."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dmls_core.errors import DataError
from dmls_core.models.engines import Fitted
from dmls_core.models.metrics import scorer
from dmls_core.search.task import SearchOutcome, SearchTask
from dmls_core.search.trial import Trial
from dmls_core.serving.formats.treelite.forest_size import visited_nodes
from dmls_core.training import TrainRequest, ensemble, train
from dmls_core.training.ensemble_selection import OutOfSample, cross_fit, select_weights
from dmls_core.training.pipeline import combine_trials
from tests.support.search_task import search_task

RNG = np.random.default_rng(0)

METRIC = {0: "r2", 3: "log_loss"}


def selection(margins, costs=None, limit=np.inf, metric="r2", truth=None):
    found = OutOfSample(
        np.asarray(margins, np.float32),
        np.ones(len(margins)) if costs is None else np.asarray(costs, float),
        np.asarray(truth),
        None,
    )
    sign = 1.0 if metric in {"r2", "accuracy"} else -1.0
    return select_weights(found, lambda one: one, scorer(metric), sign=sign, limit=limit)


@pytest.mark.parametrize("metric", ["r2", "rmse"])
def test_weights_lead_to_the_better_mean(metric):
    truth = RNG.normal(size=500)
    noise = RNG.normal(size=(3, 500))
    # The second and the first err independently; the third adds nothing but noise.
    margins = [truth + noise[0], truth + noise[1], truth + noise[0] + 5 * noise[2]]
    found = selection(margins, metric=metric, truth=truth)
    assert found.sum() == pytest.approx(1)
    assert found[:2] == pytest.approx([0.5, 0.5], abs=0.06)
    assert found[2] < 0.06


def test_the_first_model_stays_alone_if_no_mean_is_better():
    truth = RNG.normal(size=200)
    found = selection([truth, truth + 1, truth - 2], truth=truth)
    assert found.tolist() == [1, 0, 0]


def test_models_that_would_cost_too_much_are_left_out():
    truth = RNG.normal(size=500)
    margins = truth + RNG.normal(size=(4, 500))
    assert (selection(margins, truth=truth) > 0).all()
    costs = [10, 10, 5, 4]
    cheap = selection(margins, costs, 19.5, truth=truth)
    assert cheap[0] > 0
    assert np.sum(costs * (cheap > 0)) <= 19.5
    assert selection(margins, costs, 13, truth=truth).tolist() == [1, 0, 0, 0]


def test_equal_scores_are_ranked_by_the_log_loss():
    truth = np.array([0, 1, 0, 1])
    sure, unsure = np.eye(2)[truth] * 0.8 + 0.1, np.eye(2)[truth] * 0.2 + 0.4
    found = selection([unsure, sure], metric="accuracy", truth=truth)
    assert found[1] > 0.9


def test_cross_fitting_predicts_rows_with_the_weights_of_others():
    truth = RNG.normal(size=101)
    found = OutOfSample(RNG.normal(size=(3, 101)).astype(np.float32), np.ones(3), truth, np.arange(101.0))
    seen = []

    def choose(some):
        seen.append(some)
        assert np.array_equal(truth[some.weights.astype(int)], some.truth)
        return np.eye(3)[len(seen)]

    margins = cross_fit(found, choose, 0)
    assert sorted(np.concatenate([some.weights for some in seen])) == list(range(101))
    for number, other in ((1, seen[1]), (2, seen[0])):
        rows = other.weights.astype(int)
        assert np.array_equal(margins[rows], found.margins[number, rows])


def test_an_ensemble_that_is_better_by_chance_is_not_taken():
    task = task_of("random-forest-classifier", 3, rows=150, metric="accuracy")
    outcome = outcome_of(task, [{**FORESTS[2], "max_depth": depth} for depth in (8, 9, 10, 11, 12)])
    members, found = ensemble._score(task, ensemble.candidates(task, outcome), 60)
    single = task.fit(outcome.params)
    chosen = select_weights(found, single.from_margins, task.score, sign=1, limit=np.inf)
    assert len(members) == 5
    assert np.count_nonzero(chosen) > 1, "a mean scores better on the rows that it was chosen on"
    assert ensemble.build_ensemble(task, outcome, single, "accuracy") is None


def task_of(name, classes, rows=400, metric=""):
    """Return a task on a target that is a sum of steps and noise."""
    x = np.random.default_rng(1).normal(size=(rows, 5)).astype(np.float32)
    value = x[:, 0] + x[:, 1] * x[:, 2] + np.random.default_rng(2).normal(size=rows)
    y = value.astype(np.float64) if not classes else np.digitize(value, [-0.5, 0.5]).astype(np.int32)
    return search_task(name, x, y, classes, metric or METRIC[classes])


def outcome_of(task, settings, state="complete", **fixed):
    """Return the outcome of a search that tried ``settings``, the best ones first."""
    trials = [
        Trial(
            n,
            state if n else "complete",
            "cpu",
            one,
            1 - n / 10,
            intermediate_values=(1 - n / 10,),
            model="m",
        )
        for n, one in enumerate(settings)
    ]
    return SearchOutcome(tuple(trials), trials[0], {**fixed, **settings[0]})


BOOSTERS = [
    {"n_estimators": 60, "max_depth": 2, "learning_rate": 0.005},
    {"n_estimators": 30, "max_depth": 3, "learning_rate": 0.1},
    {"n_estimators": 15, "max_depth": 4, "learning_rate": 0.15},
    {"n_estimators": 150, "max_depth": 6, "learning_rate": 0.05},
]
"""The first one learns too little, so an ensemble must be better; the last one is too expensive."""

FORESTS = [
    {"n_estimators": 60, "max_features": 0.2, "max_depth": 2},
    {"n_estimators": 10, "max_features": 1.0, "max_depth": 8},
    {"n_estimators": 10, "max_features": 0.6, "max_depth": 12},
]


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("xgboost-classifier", 3),
        ("xgboost-regressor", 0),
        ("lightgbm-classifier", 3),
        ("lightgbm-regressor", 0),
    ],
)
def test_an_ensemble_of_boosters_visits_about_twice_as_many_nodes_at_most(name, classes):
    task = task_of(name, classes)
    outcome = outcome_of(task, BOOSTERS, subsample=0.7)
    single = task.fit(outcome.params)
    found = ensemble.build_ensemble(task, outcome, single, METRIC[classes])
    assert found is not None
    assert found.scores is not None
    assert task.better(found.scores[1], found.scores[0])
    about = found.as_json()
    assert about["members"][0]["trial"] == 0
    assert len(about["members"]) > 1
    assert sum(member["weight"] for member in about["members"]) == pytest.approx(1, abs=1e-3)
    assert 3 not in [member["trial"] for member in about["members"]], "its trees are deep"
    assert about["rows"] == len(task.truth)
    for member, fitted in zip(found.members, found.fitted.members, strict=True):
        assert fitted.parameters()["n_estimators"] == member.params["n_estimators"]
        assert fitted.parameters()["subsample"] == 0.7
    visited = [visited_nodes(model.to_treelite(), task.features) for model in (single, found.fitted)]
    # Models of folds are a little shallower.
    assert visited[1] <= 2.2 * visited[0]


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("family", ["random-forest", "extra-trees"])
def test_an_ensemble_of_forests_shares_the_trees_of_one(family, classes):
    task = task_of(f"{family}-{'classifier' if classes else 'regressor'}", classes)
    outcome = outcome_of(task, FORESTS, state="pruned")
    single = task.fit(outcome.params)
    found = ensemble.build_ensemble(task, outcome, single, METRIC[classes])
    assert found is not None
    trees = [member["trees"] for member in found.as_json()["members"]]
    assert len(trees) > 1
    assert sum(trees) <= 61
    for count, member in zip(trees, found.members, strict=True):
        assert count / sum(trees) == pytest.approx(member.weight, abs=0.02)
    model = found.fitted.to_treelite()
    assert visited_nodes(model, task.features) <= 2.2 * visited_nodes(single.to_treelite(), task.features)


def test_a_forest_of_the_default_size_shares_its_trees():
    task = task_of("random-forest-regressor", 0)
    settings = [{name: one[name] for name in ("max_features", "max_depth")} for one in FORESTS]
    outcome = outcome_of(task, settings, state="pruned")
    found = ensemble.build_ensemble(task, outcome, task.fit(outcome.params), "r2")
    assert found is not None
    assert sum(member["trees"] for member in found.as_json()["members"]) <= 101


def test_forests_are_scored_on_the_rows_that_their_trees_have_not_drawn():
    from sklearn.ensemble import RandomForestClassifier

    task = task_of("random-forest-classifier", 3)
    rows, margins, _ = ensemble._unseen(task, {"n_estimators": 60, "max_depth": 6})
    own = RandomForestClassifier(60, max_depth=6, random_state=0, oob_score=True)
    own.fit(task.features, task.truth)
    assert np.array_equal(rows, np.arange(400))
    assert np.allclose(margins, own.oob_decision_function_, atol=1e-6)


def test_boosters_are_scored_on_the_folds():
    task = task_of("xgboost-classifier", 3)
    rows, margins, _ = ensemble._unseen(task, {"n_estimators": 5})
    fold = task.folds[1]
    fitted = task.fit({"n_estimators": 5}, fold.train)
    assert sorted(rows) == list(range(400))
    at = len(task.folds[0].test)
    assert np.array_equal(rows[at : at + len(fold.test)], fold.test)
    assert np.allclose(margins[at : at + len(fold.test)], fitted.margins(task.features[fold.test]))


def test_rows_that_every_tree_has_drawn_do_not_count():
    task = task_of("random-forest-regressor", 0)
    _, found = ensemble._score(task, ensemble.candidates(task, outcome_of(task, FORESTS)), 3)
    # A row is drawn by all of three trees with a probability of a quarter, for each of three forests.
    assert 100 < found.margins.shape[1] < 390
    assert np.isfinite(found.margins).all()
    assert len(found.truth) == found.margins.shape[1]


def test_candidates_are_different_to_the_engine():
    task = task_of("xgboost-regressor", 0)
    same = dict(BOOSTERS[0])
    found = ensemble.candidates(task, outcome_of(task, [BOOSTERS[0], same, BOOSTERS[1]]))
    assert [member.trial.number for member in found] == [0, 2]
    pruned = outcome_of(task, BOOSTERS, state="pruned")
    assert [member.trial.number for member in ensemble.candidates(task, pruned)] == [0]
    forests = task_of("random-forest-regressor", 0)
    found = ensemble.candidates(forests, outcome_of(forests, FORESTS, state="pruned"))
    assert [member.params["n_estimators"] for member in found] == [60, 60, 60]


def test_candidates_learn_as_slowly_as_the_model():
    trials = [{"n_estimators": 60, "max_depth": 2}, {"n_estimators": 35, "max_depth": 3}]
    task = task_of("xgboost-regressor", 0)
    outcome = replace(
        outcome_of(task, trials), params={"n_estimators": 120, "max_depth": 2, "learning_rate": 0.05}
    )

    found = ensemble.candidates(task, outcome)

    assert [member.params["n_estimators"] for member in found] == [120, 70]
    assert [member.params["learning_rate"] for member in found] == [0.05, 0.05]


def test_a_trial_that_no_longer_fits_is_no_candidate(monkeypatch):
    task = task_of("xgboost-regressor", 0)
    fit = SearchTask.fit

    def refuse(self, params, rows=None):
        if params["max_depth"] == 3:
            raise DataError("refused")
        return fit(self, params, rows)

    monkeypatch.setattr(SearchTask, "fit", refuse)
    kept, found = ensemble._score(task, ensemble.candidates(task, outcome_of(task, BOOSTERS[:3])), 0)
    assert [member.trial.number for member in kept] == [0, 2]
    assert len(found.margins) == 2


def test_models_that_cannot_be_averaged_stay_alone():
    class Other(Fitted):
        predict = importances = parameters = None

    task = task_of("xgboost-regressor", 0)
    assert ensemble.build_ensemble(task, outcome_of(task, BOOSTERS), Other(), "r2") is None
    single = task.fit(BOOSTERS[0])
    assert ensemble.build_ensemble(task, outcome_of(task, BOOSTERS[:1]), single, "r2") is None


def test_the_result_has_both_models_on_the_holdout():
    task = task_of("lightgbm-regressor", 0)
    outcome = outcome_of(task, BOOSTERS[:3])
    x, y = task.features[:100], task.truth[:100]
    spec = SimpleNamespace(search=SimpleNamespace(metric="r2"))
    data = SimpleNamespace(test=x, test_target=y, test_roles=SimpleNamespace(weights=None))
    model, about = combine_trials(spec, data, [(task, outcome)], task.fit(outcome.params))
    assert about is not None
    assert about["before"]["trees"] == 60
    assert about["after"]["trees"] == sum(member["trees"] for member in about["members"])
    assert about["after"]["score"] == pytest.approx(scorer("r2")(y, model.predict(x), None))
    assert about["scores"]["ensemble"] > about["scores"]["single"]
    assert about["after"]["latency_ms"] > 0


AUTO = """model = "auto-classifier"
n_trials = 4
[columns]
target = "y"
[search]
metric = "roc_auc"
[lightgbm-classifier.n_estimators]
value = 30
[xgboost-classifier.n_estimators]
value = 20
[extra-trees-classifier.n_estimators]
value = 3
[random-forest-classifier.n_estimators]
value = 3
"""


def train_automatic(tmp_path, names, spec=AUTO):
    """Return a run of ``auto-classifier`` on rows with categories and missing values, and its log."""
    lines = []
    for row in RNG.normal(size=(400, 3)).round(3):
        kind = "abc"[int(abs(10 * row[2])) % 3]
        value = row[0] + row[1] * (kind == "a") + RNG.normal()
        name = names[int(np.clip(value + len(names) / 2, 0, len(names) - 1))]
        lines.append(f"{row[0]},{row[1] if row[2] < 1 else ''},{kind},{name}")
    (tmp_path / "data.csv").write_text("\n".join(["a,b,kind,y", *lines]))
    (tmp_path / "spec.toml").write_text(spec)
    notes: list[str] = []
    request = TrainRequest(f"{tmp_path}/spec.toml", (f"{tmp_path}/data.csv",), f"{tmp_path}/out")
    return train(request, progress=notes.append), notes, tmp_path / "out"


def test_auto_serves_the_mean_of_its_boosters(tmp_path):
    result, notes, out = train_automatic(tmp_path, ["down", "up"])
    found = result["ensemble"]
    trials = [json.loads(file.read_text()) for file in sorted((out / "trials").glob("*.json"))]
    assert sorted(member["model"] for member in found["members"]) == [
        "lightgbm-classifier",
        "xgboost-classifier",
    ]
    assert found["members"][0]["model"] == result["model"]
    assert found["members"][0]["trial"] == result["best_trial"]
    assert [member["weight"] for member in found["members"]] == [0.5, 0.5]
    assert sorted(member["trees"] for member in found["members"]) == [20, 30]
    assert {member["trial"] for member in found["members"]} <= {trial["number"] for trial in trials}
    assert (found["scores"], found["rows"]) == (None, 0)
    assert found["after"]["trees"] == result["size"]["trees"] == 50
    assert found["after"]["score"] == pytest.approx(result["score"], abs=1e-6)
    assert {"lightgbm", "xgboost"} <= set(result["versions"])
    said = "the mean of 2 models: "
    assert any(said in note for note in notes)
    for page in ("report.html", "model/card.html"):
        assert "xgboost-classifier" in (out / page).read_text()
    assert said in (out / "report.html").read_text()


@pytest.mark.parametrize(("names", "tried"), [(["down", "up"], False), (["down", "level", "up"], True)])
def test_auto_tries_catboost_if_there_are_several_classes(tmp_path, names, tried):
    spec = AUTO.replace("n_trials = 4", "n_trials = 5").replace("roc_auc", "log_loss")
    spec += "[catboost-classifier.n_estimators]\nvalue = 10\n"
    _, notes, out = train_automatic(tmp_path, names, spec)
    trials = [json.loads(file.read_text()) for file in sorted((out / "trials").glob("*.json"))]
    assert ("catboost-classifier" in {trial["model"] for trial in trials}) == tried
    assert any("catboost-classifier" in note for note in notes)
    assert any("skipping catboost-classifier" in note for note in notes) != tried
