"""Ensembles of trials: what is chosen, on which rows, and what it costs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dmls_core.errors import DataError
from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import Fitted
from dmls_core.models.metrics import scorer
from dmls_core.search.task import SearchOutcome, SearchTask, make_folds
from dmls_core.search.trial import Trial
from dmls_core.serving.forest_size import visited_nodes
from dmls_core.training import ensemble
from dmls_core.training.ensemble_selection import OutOfSample, select_weights
from dmls_core.training.pipeline import combine_trials

RNG = np.random.default_rng(0)


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
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights[:2] == pytest.approx([0.5, 0.5], abs=0.06)
    assert found.weights[2] < 0.06
    assert scorer(metric)(truth, found.weights @ np.array(margins), None) == pytest.approx(
        found.score, rel=1e-4
    )
    assert found.first == pytest.approx(scorer(metric)(truth, margins[0], None))


def test_the_first_model_stays_alone_if_no_mean_is_better():
    truth = RNG.normal(size=200)
    found = selection([truth, truth + 1, truth - 2], truth=truth)
    assert found.weights.tolist() == [1, 0, 0]
    assert found.score == found.first == pytest.approx(1)


def test_models_that_would_cost_too_much_are_left_out():
    truth = RNG.normal(size=500)
    margins = truth + RNG.normal(size=(4, 500))
    assert (selection(margins, truth=truth).weights > 0).all()
    costs = [10, 10, 5, 4]
    cheap = selection(margins, costs, 19.5, truth=truth)
    assert cheap.weights[0] > 0
    assert np.sum(costs * (cheap.weights > 0)) <= 19.5
    assert selection(margins, costs, 13, truth=truth).weights.tolist() == [1, 0, 0, 0]


def test_equal_scores_are_ranked_by_the_log_loss():
    truth = np.array([0, 1, 0, 1])
    sure, unsure = np.eye(2)[truth] * 0.8 + 0.1, np.eye(2)[truth] * 0.2 + 0.4
    found = selection([unsure, sure], metric="accuracy", truth=truth)
    assert found.first == found.score == 1
    assert found.weights[1] > 0.9


def task_of(name, classes, rows=400, weights=None):
    """Return a task on a target that is a sum of steps and noise."""
    x = np.random.default_rng(1).normal(size=(rows, 5)).astype(np.float32)
    value = x[:, 0] + x[:, 1] * x[:, 2] + np.random.default_rng(2).normal(size=rows)
    y = value.astype(np.float64) if not classes else np.digitize(value, [-0.5, 0.5]).astype(np.int32)
    return SearchTask(
        model=CATALOGUE[name],
        engine=load_engine("cpu", name),
        features=x,
        target=y,
        truth=y,
        n_classes=classes,
        folds=make_folds(y, 3, n_classes=classes, seed=0),
        score=scorer("accuracy" if classes else "r2"),
        direction="maximize",
        seed=0,
        threads=1,
        weights=weights,
    )


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
    {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.1},
    {"n_estimators": 30, "max_depth": 2, "learning_rate": 0.3},
    {"n_estimators": 15, "max_depth": 5, "learning_rate": 0.2},
    {"n_estimators": 400, "max_depth": 6, "learning_rate": 0.02},
]

FORESTS = [
    {"n_estimators": 60, "max_features": 0.4, "max_depth": 8},
    {"n_estimators": 10, "max_features": 1.0, "max_depth": 5},
    {"n_estimators": 10, "max_features": 0.2, "max_depth": 12},
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
def test_an_ensemble_of_boosters_visits_at_most_twice_as_many_nodes(name, classes):
    task = task_of(name, classes)
    outcome = outcome_of(task, BOOSTERS, subsample=0.7)
    single = task.fit(outcome.params)
    found = ensemble.build_ensemble(task, outcome, single)
    assert found is not None
    assert found.score > found.single_score
    about = found.as_json()
    assert about["members"][0]["trial"] == 0
    assert len(about["members"]) > 1
    assert sum(member["weight"] for member in about["members"]) == pytest.approx(1, abs=1e-3)
    assert 3 not in [member["trial"] for member in about["members"]], "ten times the rounds"
    assert about["rows"] == len(task.truth)
    for member, fitted in zip(found.members, found.fitted.members, strict=True):
        assert fitted.parameters()["n_estimators"] == member.params["n_estimators"]
        assert fitted.parameters()["subsample"] == 0.7
    visited = [visited_nodes(model.to_treelite(), task.features) for model in (single, found.fitted)]
    assert visited[1] <= 2 * visited[0]


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("family", ["random-forest", "extra-trees"])
def test_an_ensemble_of_forests_shares_the_trees_of_one(family, classes):
    task = task_of(f"{family}-{'classifier' if classes else 'regressor'}", classes)
    outcome = outcome_of(task, FORESTS, state="pruned")
    single = task.fit(outcome.params)
    found = ensemble.build_ensemble(task, outcome, single)
    assert found is not None
    trees = [member["trees"] for member in found.as_json()["members"]]
    assert len(trees) > 1
    assert sum(trees) <= 61
    for count, member in zip(trees, found.members, strict=True):
        assert count / sum(trees) == pytest.approx(member.weight, abs=0.02)
    model = found.fitted.to_treelite()
    assert visited_nodes(model, task.features) <= 2 * visited_nodes(single.to_treelite(), task.features)


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
    same = {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.1}
    found = ensemble.candidates(task, outcome_of(task, [BOOSTERS[0], same, BOOSTERS[1]]))
    assert [member.trial.number for member in found] == [0, 2]
    pruned = outcome_of(task, BOOSTERS, state="pruned")
    assert [member.trial.number for member in ensemble.candidates(task, pruned)] == [0]
    forests = task_of("random-forest-regressor", 0)
    found = ensemble.candidates(forests, outcome_of(forests, FORESTS, state="pruned"))
    assert [member.params["n_estimators"] for member in found] == [60, 60, 60]


def test_a_trial_that_no_longer_fits_is_no_candidate(monkeypatch):
    task = task_of("xgboost-regressor", 0)
    fit = SearchTask.fit

    def refuse(self, params, rows=None):
        if params["max_depth"] == 2:
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
    assert ensemble.build_ensemble(task, outcome_of(task, BOOSTERS), Other()) is None
    single = task.fit(BOOSTERS[0])
    assert ensemble.build_ensemble(task, outcome_of(task, BOOSTERS[:1]), single) is None


def test_the_result_has_both_models_on_the_holdout():
    task = task_of("lightgbm-regressor", 0)
    outcome = outcome_of(task, BOOSTERS[:3])
    x, y = task.features[:100], task.truth[:100]
    spec = SimpleNamespace(search=SimpleNamespace(metric="r2"))
    data = SimpleNamespace(test=x, test_target=y, test_roles=SimpleNamespace(weights=None))
    model, about = combine_trials(spec, data, task, outcome, task.fit(outcome.params))
    assert about is not None
    assert about["before"]["trees"] == 40
    assert about["after"]["trees"] == sum(member["trees"] for member in about["members"])
    assert about["after"]["score"] == pytest.approx(scorer("r2")(y, model.predict(x), None))
    assert about["scores"]["ensemble"] > about["scores"]["single"]
    assert about["after"]["latency_ms"] > 0
