"""Compacted models: the sizes that are scored are those that remain, and they serve as well."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.models import METRICS
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.training import compact
from tests.support.search_task import search_task

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(600, 4)).astype(np.float32)
FRESH = RNG.normal(size=(400, 4)).astype(np.float32)
"""Rows of no training."""


def value(rows):
    return rows[:, 0] + 0.5 * rows[:, 1] + 0.3 * np.random.default_rng(1).normal(size=len(rows))


def target(rows, classes):
    if not classes:
        return value(rows).astype(np.float64)
    return np.digitize(value(rows), [0.0] if classes == 2 else [-0.5, 0.5]).astype(np.int32)


def fitted(name, classes, rows=600, **params):
    """Return the task of a model, the model, and the params that it was fitted with."""
    features, truth = FEATURES[:rows], target(FEATURES[:rows], classes)
    metric = "accuracy" if classes else "r2"
    task = search_task(name, features, truth, classes, metric)
    params = {"n_estimators": 60, **params}
    found = task.engine.fit(task.model, params, features, truth, n_classes=classes, seed=0, threads=1)
    return task, found, params, metric


def test_out_of_bag_predictions_are_those_of_scikit_learn():
    from sklearn.ensemble import RandomForestClassifier

    task, model, params, _ = fitted("random-forest-classifier", 3)
    sizes = compact.nested_sizes(task, model, params)
    own = RandomForestClassifier(60, random_state=0, oob_score=True).fit(FEATURES, task.truth)
    voted = sizes.predictions[0, 0].sum(axis=1) > 0
    assert voted.all()
    assert sizes.trees == (11, 15, 21, 30, 42, 60)
    assert sizes.depths[-1] == max(tree.get_depth() for tree in own.estimators_)
    assert sizes.nodes[-1, -1] == sum(tree.tree_.node_count for tree in own.estimators_)
    # At ten trees about one row in a hundred has no vote, and is left out.
    assert 580 <= len(sizes.truth) <= 600
    expected = {tuple(np.round(row, 5)) for row in own.oob_decision_function_}
    assert {tuple(np.round(row.astype(float), 5)) for row in sizes.predictions[-1, -1]} <= expected


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("extra-trees-classifier", 3),
        ("extra-trees-regressor", 0),
        ("xgboost-classifier", 3),
        ("xgboost-regressor", 0),
        ("lightgbm-classifier", 2),
        ("lightgbm-regressor", 0),
    ],
)
def test_a_size_is_scored_as_the_model_that_would_be_left(name, classes):
    task, model, params, _ = fitted(name, classes)
    sizes = compact.nested_sizes(task, model, params)
    fold = task.folds[0]
    # The rows of all folds follow each other.
    assert len(sizes.truth) == len(task.truth)
    own = task.engine.fit(
        task.model,
        params,
        task.features[fold.train],
        task.target[fold.train],
        n_classes=classes,
        seed=0,
        threads=1,
    )
    trees, depth = 2, min(3, len(sizes.depths) - 1)
    smaller = compact.shrink(task, own, sizes.trees[trees], sizes.depths[depth] or None)
    found = smaller.predict(FEATURES[fold.test])
    scored = sizes.predictions[trees, depth, : len(fold.test)]
    assert np.abs(scored - found.reshape(scored.shape)).max() < 1e-5
    assert smaller.parameters()["n_estimators"] == sizes.trees[trees]


@pytest.mark.parametrize("name", ["xgboost-classifier", "lightgbm-classifier"])
def test_the_first_rounds_of_a_booster_are_a_booster_of_fewer_rounds(name):
    _, model, _, _ = fitted(name, 3)
    _, fewer, _, _ = fitted(name, 3, n_estimators=12)
    shortened = model.first_rounds(12)
    assert np.array_equal(shortened.predict(FRESH), fewer.predict(FRESH))
    assert shortened.parameters() == fewer.parameters()
    assert np.allclose(shortened.importances(), fewer.importances())


@pytest.mark.parametrize(
    ("name", "classes", "share"),
    [
        ("random-forest-classifier", 2, 0.5),
        ("random-forest-regressor", 0, 0.5),
        ("xgboost-classifier", 2, 0.8),
    ],
)
def test_a_model_gets_smaller_and_stays_as_good(name, classes, share):
    task, model, params, metric = fitted(name, classes, n_estimators=120)
    truth = target(FRESH, classes)
    whole = METRICS[metric].compute(truth, model.predict(FRESH))
    smaller, found = compact.compact_model(task, model, params, metric, FRESH[:1])
    before, after = found["before"], found["after"]
    assert before["trees"] == 120
    assert after["nodes"] < share * before["nodes"]
    assert after["bytes"] < (share + 0.1) * before["bytes"]
    assert after["latency_ms"] > 0
    assert abs(METRICS[metric].compute(truth, smaller.predict(FRESH)) - whole) < 0.03
    assert compact.describe_compaction(found).startswith("compacted from 120 trees of depth ")
    # What is served is the smaller model.
    served = checkpoint.snap_thresholds(smaller.to_treelite())
    assert served.num_tree == after["trees"]
    check_parity(smaller.predict(FRESH), checkpoint.predict(served, FRESH, threads=1))
    task, again, params, _ = fitted(name, classes, n_estimators=120)
    repeated = compact.compact_model(task, again, params, metric, FRESH[:1])[1]["after"]
    assert {**repeated, "latency_ms": 0} == {**after, "latency_ms": 0}


def test_a_depth_beyond_the_tried_ones_is_kept_whole():
    assert compact.tree_depths(3) == (1, 2, 3)
    assert compact.tree_depths(0) == (0,)
    assert compact.tree_depths(60)[-1] == 60
    assert len(compact.tree_depths(60)) <= compact.MAX_DEPTHS
    assert compact.tree_counts(1) == (1,)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lightgbm-classifier", {"boosting_type": "dart"}),
        ("xgboost-classifier", {"rows": 90}),
        ("random-forest-classifier", {"rows": 90}),
    ],
)
def test_a_model_that_cannot_be_made_smaller_stays(name, changes):
    task, model, params, metric = fitted(name, 2, **changes)
    assert compact.compact_model(task, model, params, metric, FRESH[:1]) == (model, None)
