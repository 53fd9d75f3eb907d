from __future__ import annotations

import numpy as np
import pytest
import treelite
import xgboost
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor
from treelite.sklearn import import_model

from dmls_core.serving.formats.treelite import checkpoint, depth_predictions
from dmls_core.serving.formats.treelite.depth_predictions import predictions_by_depth


def data(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 5)).astype(np.float32)
    return x, x[:, 0] * x[:, 1] + rng.normal(size=n_rows) / 2


def cut(forest, rows, depth):
    """What scikit-learn's own trees say of rows at a depth: the values of the nodes that are passed there."""
    total = 0.0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        nodes = np.zeros(len(rows), dtype=int)
        for _ in range(depth):
            left = rows[np.arange(len(rows)), tree.feature[nodes].clip(0)] <= tree.threshold[nodes]
            children = np.where(left, tree.children_left[nodes], tree.children_right[nodes])
            nodes = np.where(tree.children_left[nodes] < 0, nodes, children)
        total = total + tree.value[nodes, 0]
    return total / len(forest.estimators_)


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier, RandomForestRegressor])
def test_each_depth_predicts_the_values_of_its_nodes(kind, tmp_path):
    x, value = data(400)
    target = value if kind is RandomForestRegressor else np.digitize(value, [-0.5, 0.5])
    forest = kind(6, random_state=0).fit(x, target)
    # As a server loads it: thresholds in single precision, read from a file.
    model = checkpoint.export(import_model(forest), tmp_path / "checkpoint.tl")
    rows = data(50, seed=1)[0]
    found = predictions_by_depth(model, rows)
    assert len(found) - 1 == max(estimator.tree_.max_depth for estimator in forest.estimators_)
    for depth in (0, 1, 4, len(found) - 1):
        assert np.allclose(found[depth], cut(forest, rows, depth), rtol=0, atol=1e-12)
    assert np.allclose(found[-1].squeeze(), checkpoint.predict(model, rows), rtol=0, atol=1e-6)


def test_a_missing_value_goes_where_the_tree_sends_it():
    x, value = data(400)
    x[::3, 0] = np.nan
    forest = RandomForestClassifier(6, random_state=0).fit(x, value > 0)
    found = predictions_by_depth(import_model(forest), x[:50])
    assert np.allclose(found[-1], forest.predict_proba(x[:50]), rtol=0, atol=1e-12)


def test_rows_and_trees_are_bounded(monkeypatch):
    x, value = data(400)
    forest = RandomForestClassifier(6, random_state=0).fit(x, value > 0)
    found = predictions_by_depth(import_model(forest), x, trees=1)
    assert np.allclose(found[-1], forest.estimators_[0].predict_proba(x))
    monkeypatch.setattr(depth_predictions, "VALUES", len(found) * 2 * 30)
    assert predictions_by_depth(import_model(forest), x, trees=1).shape == (len(found), 30, 2)


def test_boosted_trees_have_no_predictions_by_depth():
    x, value = data(100)
    fitted = xgboost.XGBRegressor(n_estimators=3).fit(x, value)
    assert predictions_by_depth(treelite.frontend.from_xgboost(fitted.get_booster()), x) is None
