"""A cut of a grown forest is the forest that scikit-learn would have grown so."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor

from dmls_core.search import Space
from dmls_core.search.nested import grown
from dmls_core.search.nested.axes import lay_out
from dmls_core.search.nested.cut import cut_tree
from dmls_core.search.nested.ground import Field, Ground
from dmls_core.search.nested.grown import GrownForest
from dmls_core.search.nested.walk import Nodes
from dmls_core.spec import Choice, Range
from tests.unit.search.nested.conftest import CLASSIFIER, REGRESSOR, make_problem

CUTS = {
    "max_depth": Choice(values=(1, 2, 4, 7, "none")),
    "min_samples_split": Choice(values=(2, 9, 0.2)),
    "min_impurity_decrease": Choice(values=(0.0, 0.003, 0.02)),
}


def whole_field(problem) -> Field:
    """Every row is grown on and scored, its values as they are."""
    rows = np.arange(len(problem.truth))
    ground = Ground(problem.features, problem.target, problem.features, rows, problem.truth, True)
    return Field((ground,), None)


def grow(problem, space, params, trees, steps=()):
    layout = lay_out(problem, Space.of(space))
    forest = GrownForest(problem, layout, whole_field(problem).grounds[0], params, threads=1)
    for step in (*steps, trees):
        forest.grow(step)
    return layout, forest


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
@pytest.mark.parametrize("name", list(CUTS))
def test_out_of_bag_answers_equal_those_of_a_forest_that_was_limited_when_it_grew(model, name):
    # With one column no random draw depends on how many nodes were split before.
    problem = make_problem(model, columns=1)
    layout, forest = grow(problem, {"n_estimators": Range(min=5, max=30), name: CUTS[name]}, {}, 30, (5, 9))
    kind = RandomForestClassifier if problem.n_classes else RandomForestRegressor
    options = {"max_features": "sqrt"} if problem.n_classes else {}

    for cut, setting in enumerate(layout.cuts):
        params = {key: None if value == "none" else value for key, value in setting.items()}
        real = kind(30, oob_score=True, random_state=problem.seed, **params, **options)
        real.fit(problem.features, problem.target)
        expected = real.oob_decision_function_ if problem.n_classes else real.oob_prediction_
        assert forest.answered().all()
        assert forest.prediction(cut, np.arange(len(problem.truth))) == pytest.approx(expected, abs=1e-12)


def naive(tree, row, cut, rows) -> int:
    """The node where a row stops, by scikit-learn's own rules, one node after the other."""
    node, depth = 0, 0
    while tree.children_left[node] >= 0:
        limit = cut["min_samples_split"]
        limit = max(2, int(np.ceil(limit * rows))) if isinstance(limit, float) else limit
        left, right = tree.children_left[node], tree.children_right[node]
        weight = tree.weighted_n_node_samples
        gain = weight[node] * tree.impurity[node]
        gain -= weight[left] * tree.impurity[left] + weight[right] * tree.impurity[right]
        if cut["max_depth"] != "none" and depth >= cut["max_depth"]:
            break
        if tree.n_node_samples[node] < limit or gain / weight[0] < cut["min_impurity_decrease"] - 1e-12:
            break
        node = left if row[tree.feature[node]] <= tree.threshold[node] else right
        depth += 1
    return int(node)


@pytest.mark.parametrize(
    "real",
    [
        RandomForestClassifier(5, random_state=0, class_weight="balanced"),
        RandomForestRegressor(5, random_state=0, criterion="poisson"),
        ExtraTreesRegressor(5, random_state=0),
    ],
)
def test_every_row_lands_where_a_walk_by_hand_ends_and_where_the_cut_tree_sends_it(real):
    problem = make_problem(CLASSIFIER if "Classifier" in type(real).__name__ else REGRESSOR)
    layout = lay_out(problem, Space.of(CUTS))
    x = problem.features
    for estimator in real.fit(x, problem.target).estimators_:
        tree = estimator.tree_
        landings = Nodes.of(tree).landings(layout.cuts, len(x))
        leaves = tree.apply(x)
        for cut, landing in zip(layout.cuts, landings.T, strict=True):
            expected = [naive(tree, row, cut, len(x)) for row in x[:60]]
            assert landing[leaves[:60]].tolist() == expected
            smaller = cut_tree(tree, cut, len(x), None)
            assert (smaller.predict(x) == tree.value[landing[leaves]][:, 0]).all()
            assert smaller.node_count == len(np.unique(landing))


def test_growing_in_steps_or_at_once_is_the_same_forest():
    problem = make_problem()
    space = {"n_estimators": Range(min=3, max=20), "max_depth": Range(min=1, max=5)}
    _, stepwise = grow(problem, space, {}, 20, (3, 4, 11))
    _, at_once = grow(problem, space, {}, 20)

    assert stepwise.scores() == at_once.scores()
    rows = np.flatnonzero(stepwise.answered())
    assert (stepwise.prediction(2, rows) == at_once.prediction(2, rows)).all()


def test_chunks_of_rows_change_nothing(monkeypatch):
    problem = make_problem()
    _, whole = grow(problem, CUTS, {}, 10)
    monkeypatch.setattr(grown, "CHUNK", 7)
    _, chunked = grow(problem, CUTS, {}, 10)

    assert whole.scores() == chunked.scores()


def test_ranks_agree_with_forests_fitted_one_by_one():
    problem = make_problem(rows=400, metric="log_loss")
    space = {"n_estimators": Choice(values=(10, 40, 120)), "max_depth": Choice(values=(1, 2, 3, 5, 9))}
    layout = lay_out(problem, Space.of(space))
    forest = GrownForest(problem, layout, whole_field(problem).grounds[0], {}, threads=1)
    nested, fitted = [], []
    held = make_problem(rows=400, metric="log_loss")
    for trees in layout.sizes:
        forest.grow(trees)
        nested += forest.scores()
        for cut in layout.cuts:
            params = {"n_estimators": trees, **cut}
            model = problem.engine.fit(
                problem.model,
                params,
                problem.features[:300],
                problem.target[:300],
                n_classes=3,
                seed=5,
                threads=1,
            )
            fitted.append(held.score(held.truth[300:], model.predict(held.features[300:])))

    # Small forests are out of bag for few trees only: their log loss is that of still smaller ones.
    large = slice(len(layout.cuts), None)
    assert spearmanr(nested[large], fitted[large])[0] > 0.7
