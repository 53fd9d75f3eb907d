"""Trees that are grown one by one are those that scikit-learn's forests grow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from dmls_core.search import Space
from dmls_core.search.forest import tree_builder
from dmls_core.search.forest.incremental_forest import IncrementalForest
from dmls_core.search.forest.scoring import ScoringSplit
from dmls_core.search.forest.space import partition_space
from dmls_core.search.forest.tree_builder import TreeBuilder, build_trees, trees_equal
from dmls_core.spec import Range
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


grow = TreeBuilder.grow


@pytest.mark.parametrize("changed", [other_tree, no_such_argument])
def test_where_scikit_learn_has_changed_the_forest_grows_its_trees_itself(changed, monkeypatch):
    task = make_task(CLASSIFIER)
    parts = partition_space(task, Space.of({"n_estimators": Range(min=5, max=12)}))
    rows = np.arange(len(task.truth))
    split = ScoringSplit(task.features, task.target, task.features, rows, task.truth, True)
    usual = IncrementalForest(task, parts, split, {}, threads=1)
    usual.grow(12)

    monkeypatch.setattr(tree_builder, "_verified", {})
    monkeypatch.setattr(TreeBuilder, "grow", changed)
    slow = IncrementalForest(task, parts, split, {}, threads=1)
    slow.grow(12)
    assert tree_builder._verified == {next(iter(tree_builder._verified)): False}
    assert slow.scores() == usual.scores()
    for one, other in zip(slow.release_forest().estimators_, usual.release_forest().estimators_, strict=True):
        assert trees_equal(one.tree_, other.tree_)
        assert one.random_state == other.random_state
