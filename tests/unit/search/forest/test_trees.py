"""Grown trees equal those of scikit-learn's forests; pruned ones those under smaller limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from dmls_core.search.forest import growing, trees
from dmls_core.search.forest.growing import IncrementalForest
from dmls_core.search.forest.scoring import ScoringData, ScoringSplit
from dmls_core.search.forest.space import partition_space
from dmls_core.search.forest.trees import Nodes, TreeBuilder, build_trees, prune_tree, trees_equal
from dmls_core.search.task import Space
from dmls_core.spec import Choice, Range
from tests.unit.search.forest.conftest import CLASSIFIER, REGRESSOR, make_task

CLASSIFIERS = [RandomForestClassifier, ExtraTreesClassifier]
REGRESSORS = [RandomForestRegressor, ExtraTreesRegressor]
LIMITS = [
    {},
    {"max_depth": 4, "min_samples_leaf": 3, "max_features": 0.5},
    {"min_samples_leaf": 0.02, "min_samples_split": 0.1, "min_impurity_decrease": 0.001},
    {"min_weight_fraction_leaf": 0.02, "min_samples_split": 7, "max_features": "log2"},
]


def agree(forest, task) -> bool:
    """Grow the trees of a fitted forest again; say whether all are the same."""
    builder = TreeBuilder.of(forest, task.features, task.target)
    assert builder is not None
    again = list(build_trees(builder, builder.seeds(0, len(forest.estimators_)), 2, lambda tree, _: tree))
    return all(trees_equal(one, other.tree_) for one, other in zip(again, forest.estimators_, strict=True))


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize("weights", [None, "balanced", "balanced_subsample"])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_classifiers(kind, criterion, weights, bootstrap):
    task = make_task(CLASSIFIER)
    for limits in LIMITS:
        forest = kind(
            9, criterion=criterion, class_weight=weights, bootstrap=bootstrap, random_state=3, **limits
        )
        assert agree(forest.fit(task.features, task.target), task), limits


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("criterion", ["squared_error", "absolute_error", "poisson"])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_regressors(kind, criterion, bootstrap):
    task = make_task(REGRESSOR)
    task = replace(task, target=task.target - task.target.min() + 1)
    sample = {"max_samples": 0.5} if bootstrap else {}
    for limits in LIMITS:
        forest = kind(7, criterion=criterion, bootstrap=bootstrap, random_state=3, **sample, **limits)
        assert agree(forest.fit(task.features, task.target), task), limits


@pytest.mark.parametrize("limit", [{"max_leaf_nodes": 9}, {"ccp_alpha": 0.01}])
def test_what_does_not_grow_depth_first_is_left_to_the_forest(limit):
    task = make_task(CLASSIFIER)
    forest = RandomForestClassifier(2, random_state=0, **limit).fit(task.features, task.target)
    assert TreeBuilder.of(forest, task.features, task.target) is None


def test_missing_values_are_left_to_the_forest():
    task = make_task(CLASSIFIER)
    task.features[3, 0] = np.nan
    forest = RandomForestClassifier(2, random_state=0).fit(task.features, task.target)
    assert TreeBuilder.of(forest, task.features, task.target) is None


def other_tree(self, seed):
    return grow(self, seed + 1)


def no_such_argument(self, seed):
    raise TypeError("build() takes 4 positional arguments")


builder_grow = TreeBuilder.grow


@pytest.mark.parametrize("changed", [other_tree, no_such_argument])
def test_where_scikit_learn_has_changed_the_forest_grows_its_trees_itself(changed, monkeypatch):
    task = make_task(CLASSIFIER)
    parts = partition_space(task, Space.of({"n_estimators": Range(min=5, max=12)}))
    rows = np.arange(len(task.truth))
    split = ScoringSplit(task.features, task.target, task.features, rows, task.truth, True)
    usual = IncrementalForest(task, parts, split, {}, threads=1)
    usual.grow(12)

    monkeypatch.setattr(trees, "_verified", {})
    monkeypatch.setattr(TreeBuilder, "grow", changed)
    slow = IncrementalForest(task, parts, split, {}, threads=1)
    slow.grow(12)
    assert trees._verified == {next(iter(trees._verified)): False}
    assert slow.scores() == usual.scores()
    for one, other in zip(slow.release_forest().estimators_, usual.release_forest().estimators_, strict=True):
        assert trees_equal(one.tree_, other.tree_)
        assert one.random_state == other.random_state


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
    monkeypatch.setattr(growing, "CHUNK", 7)
    _, chunked = grow(task, CUTS, {}, 10)

    assert whole.scores() == chunked.scores()


def test_ranks_agree_with_forests_fitted_one_by_one():
    task = make_task(rows=400, metric="log_loss")
    space = {"n_estimators": Choice(values=(10, 40, 120)), "max_depth": Choice(values=(1, 2, 3, 5, 9))}
    parts = partition_space(task, Space.of(space))
    forest = IncrementalForest(task, parts, whole_field(task).splits[0], {}, threads=1)
    nested, fitted = [], []
    held = make_task(rows=400, metric="log_loss")
    for size in parts.sizes:
        forest.grow(size)
        nested += forest.scores()
        for cut in parts.limits:
            params = {"n_estimators": size, **cut}
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
