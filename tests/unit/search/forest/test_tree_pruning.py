"""A cut of a grown forest is the forest that scikit-learn would have grown so."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor

from dmls_core.search import Space
from dmls_core.search.forest import incremental_forest
from dmls_core.search.forest.incremental_forest import IncrementalForest
from dmls_core.search.forest.scoring import ScoringData, ScoringSplit
from dmls_core.search.forest.space import partition_space
from dmls_core.search.forest.tree_pruning import Nodes, prune_tree
from dmls_core.spec import Choice, Range
from tests.unit.search.forest.conftest import CLASSIFIER, REGRESSOR, make_task

CUTS = {
    "max_depth": Choice(values=(1, 2, 4, 7, "none")),
    "min_samples_split": Choice(values=(2, 9, 0.2)),
    "min_impurity_decrease": Choice(values=(0.0, 0.003, 0.02)),
}


def whole_field(task) -> ScoringData:
    """Every row is grown on and scored, its values as they are."""
    rows = np.arange(len(task.truth))
    split = ScoringSplit(task.features, task.target, task.features, rows, task.truth, True)
    return ScoringData((split,), None)


def grow(task, space, params, trees, steps=()):
    parts = partition_space(task, Space.of(space))
    forest = IncrementalForest(task, parts, whole_field(task).splits[0], params, threads=1)
    for step in (*steps, trees):
        forest.grow(step)
    return parts, forest


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
@pytest.mark.parametrize("name", list(CUTS))
def test_out_of_bag_answers_equal_those_of_a_forest_that_was_limited_when_it_grew(model, name):
    # With one column no random draw depends on how many nodes were split before.
    task = make_task(model, columns=1)
    parts, forest = grow(task, {"n_estimators": Range(min=5, max=30), name: CUTS[name]}, {}, 30, (5, 9))
    kind = RandomForestClassifier if task.n_classes else RandomForestRegressor
    options = {"max_features": "sqrt"} if task.n_classes else {}

    for cut, setting in enumerate(parts.limits):
        params = {key: None if value == "none" else value for key, value in setting.items()}
        real = kind(30, oob_score=True, random_state=task.seed, **params, **options)
        real.fit(task.features, task.target)
        expected = real.oob_decision_function_ if task.n_classes else real.oob_prediction_
        assert forest.has_votes().all()
        assert forest.prediction(cut, np.arange(len(task.truth))) == pytest.approx(expected, abs=1e-12)


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
    task = make_task(CLASSIFIER if "Classifier" in type(real).__name__ else REGRESSOR)
    parts = partition_space(task, Space.of(CUTS))
    x = task.features
    for estimator in real.fit(x, task.target).estimators_:
        tree = estimator.tree_
        pruned_leaves = Nodes.of(tree).pruned_leaves(parts.limits, len(x))
        leaves = tree.apply(x)
        for cut, leaf_of in zip(parts.limits, pruned_leaves.T, strict=True):
            expected = [naive(tree, row, cut, len(x)) for row in x[:60]]
            assert leaf_of[leaves[:60]].tolist() == expected
            smaller = prune_tree(tree, cut, len(x), None)
            assert (smaller.predict(x) == tree.value[leaf_of[leaves]][:, 0]).all()
            assert smaller.node_count == len(np.unique(leaf_of))


def test_growing_in_steps_or_at_once_is_the_same_forest():
    task = make_task()
    space = {"n_estimators": Range(min=3, max=20), "max_depth": Range(min=1, max=5)}
    _, stepwise = grow(task, space, {}, 20, (3, 4, 11))
    _, at_once = grow(task, space, {}, 20)

    assert stepwise.scores() == at_once.scores()
    rows = np.flatnonzero(stepwise.has_votes())
    assert (stepwise.prediction(2, rows) == at_once.prediction(2, rows)).all()


def test_chunks_of_rows_change_nothing(monkeypatch):
    task = make_task()
    _, whole = grow(task, CUTS, {}, 10)
    monkeypatch.setattr(incremental_forest, "CHUNK", 7)
    _, chunked = grow(task, CUTS, {}, 10)

    assert whole.scores() == chunked.scores()


def test_ranks_agree_with_forests_fitted_one_by_one():
    task = make_task(rows=400, metric="log_loss")
    space = {"n_estimators": Choice(values=(10, 40, 120)), "max_depth": Choice(values=(1, 2, 3, 5, 9))}
    parts = partition_space(task, Space.of(space))
    forest = IncrementalForest(task, parts, whole_field(task).splits[0], {}, threads=1)
    nested, fitted = [], []
    held = make_task(rows=400, metric="log_loss")
    for trees in parts.sizes:
        forest.grow(trees)
        nested += forest.scores()
        for cut in parts.limits:
            params = {"n_estimators": trees, **cut}
            model = task.engine.fit(
                task.model,
                params,
                task.features[:300],
                task.target[:300],
                n_classes=3,
                seed=5,
                threads=1,
            )
            fitted.append(held.score(held.truth[300:], model.predict(held.features[300:])))

    # Small forests are out of bag for few trees only: their log loss is that of still smaller ones.
    large = slice(len(parts.limits), None)
    assert spearmanr(nested[large], fitted[large])[0] > 0.7
