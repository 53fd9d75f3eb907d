"""Nested scores that are read from Treelite models: those of forests that were really cut so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import treelite
import treelite.sklearn
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

from dmls_core.models.engines import ForestEngine
from dmls_core.models.engines.cuml import CumlForestEngine
from dmls_core.models.engines.forests import RANDOM_FORESTS, SklearnForestEngine
from dmls_core.models.trees import read_trees
from dmls_core.search.candidate import make_candidate
from dmls_core.search.forest import growing
from dmls_core.search.forest.growing import BlockForest, seed_of_block
from dmls_core.search.forest.scoring import prepare_scoring
from dmls_core.search.forest.space import partition_space, structural
from dmls_core.search.forest.trees import prune_tree
from dmls_core.search.optimize import search
from dmls_core.search.task import Space
from dmls_core.spec import Choice, Range
from tests.unit.search.forest.conftest import CLASSIFIER, REGRESSOR, make_task

CUTS = {"max_depth": Choice(values=(1, 2, 4, 7, "none")), "min_samples_split": Choice(values=(2, 9, 0.2))}
SIZES = Choice(values=(2, 5, 12))


class Elsewhere(ForestEngine):
    """scikit-learn's forests with the capabilities of cuML's: whole fits, and trees in Treelite models."""

    name, device = "elsewhere", "gpu"
    models, packages, libraries = RANDOM_FORESTS, (), ()
    arguments = CumlForestEngine.arguments

    def fit(self, model, params, *arrays, **options):
        return SklearnForestEngine().fit(model, self.effective(model, params), *arrays, **options)


def elsewhere(model: str = CLASSIFIER, **options: Any):
    return replace(make_task(model, **options), engine=Elsewhere())


def forest_like(task, parts, trees: int, seed: int, **cut):
    """Fit what one block is, with the settings of a cut."""
    params = {key: None if value == "none" else value for key, value in cut.items()}
    kind = RandomForestClassifier if task.n_classes else RandomForestRegressor
    options = {"max_features": "sqrt"} if task.n_classes else {}
    return kind(trees, random_state=seed, **params, **options)


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
def test_scores_of_every_size_and_depth_are_those_of_forests_that_were_limited_so(model):
    # With one column no random draw depends on how many nodes were split before.
    task = elsewhere(model, columns=1)
    space = Space.of({"n_estimators": SIZES, "max_depth": CUTS["max_depth"]})
    parts = partition_space(task, space)
    split = prepare_scoring(task, space, len(parts.limits)).splits[0]
    forest = BlockForest(task, parts, split, {}, threads=1)
    sums = np.zeros((len(parts.limits), len(split.truth), max(1, task.n_classes)))

    for before, size in zip((0, *parts.sizes), parts.sizes, strict=False):
        forest.grow(size)
        for cut, setting in enumerate(parts.limits):
            real = forest_like(task, parts, size - before, seed_of_block(task.seed, before), **setting)
            real.fit(split.features, split.target)
            found = real.predict_proba(split.probe) if task.n_classes else real.predict(split.probe)
            sums[cut] += found.reshape(len(found), -1) * (size - before)
            expected = sums[cut] / size if task.n_classes else sums[cut, :, 0] / size
            assert forest.prediction(cut, np.arange(len(found))) == pytest.approx(expected, abs=1e-9)
            assert forest.scores()[cut] == pytest.approx(task.score(split.truth, expected), abs=1e-9)


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
def test_predictions_tree_by_tree_equal_those_of_pruned_trees(model, monkeypatch):
    task = elsewhere(model)
    parts = partition_space(task, Space.of({"n_estimators": SIZES, **CUTS}))
    real = forest_like(task, parts, 12, 3).fit(task.features, task.target)
    loaded = treelite.sklearn.import_model(real)
    probe = task.features[:60]
    rows, outputs = len(task.features), max(1, task.n_classes)

    for most in (1, 5, 12):
        groups = list(read_trees(loaded, outputs, most=most))
        first = 0
        for trees in groups:
            mine = real.estimators_[first : first + len(trees.roots)]
            first += len(trees.roots)
            for cut, found in growing.sum_predictions(trees, parts.limits, probe, rows, task.engine):
                smaller = [prune_tree(one.tree_, parts.limits[cut], rows, None) for one in mine]
                expected = np.sum([tree.predict(probe) for tree in smaller], axis=0)
                assert found == pytest.approx(expected.reshape(found.shape), abs=1e-9)
        assert first == 12


def rebuilt(real, outputs: int) -> treelite.Model:
    """A forest in single precision that counts drawn rows and knows no weights, as cuML hands its over."""
    classes = outputs > 1
    builder = ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=Metadata(
            num_feature=real.n_features_in_,
            task_type="kMultiClf" if classes else "kRegressor",
            average_tree_output=True,
            num_target=1,
            num_class=[outputs],
            leaf_vector_shape=(1, outputs),
        ),
        tree_annotation=TreeAnnotation(
            num_tree=len(real.estimators_),
            target_id=[0] * len(real.estimators_),
            class_id=[-1 if classes else 0] * len(real.estimators_),
        ),
        postprocessor=PostProcessorFunc(name="identity_multiclass" if classes else "identity"),
        base_scores=[0.0] * outputs,
    )
    for estimator in real.estimators_:
        tree = estimator.tree_
        builder.start_tree()
        for node in range(tree.node_count):
            builder.start_node(node)
            if tree.children_left[node] < 0:
                value = tree.value[node, 0]
                builder.leaf(value.tolist() if classes else float(value[0]))
            else:
                builder.numerical_test(
                    feature_id=int(tree.feature[node]),
                    threshold=float(tree.threshold[node]),
                    default_left=True,
                    opname="<=",
                    left_child_key=int(tree.children_left[node]),
                    right_child_key=int(tree.children_right[node]),
                )
            builder.data_count(int(tree.weighted_n_node_samples[node]))
            builder.end_node()
        builder.end_tree()
    return builder.commit()


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
def test_inner_nodes_are_the_means_of_their_rows_where_rows_are_counted_as_often_as_drawn(model):
    task = elsewhere(model)
    outputs = max(1, task.n_classes)
    real = forest_like(task, None, 6, 1).fit(task.features, task.target)

    (trees,) = read_trees(rebuilt(real, outputs), outputs, most=6)

    values = np.concatenate([one.tree_.value[:, 0, :] for one in real.estimators_])
    drawn = np.concatenate([one.tree_.weighted_n_node_samples for one in real.estimators_])
    assert trees.values == pytest.approx(values, rel=1e-5, abs=1e-6)
    assert trees.rows.tolist() == drawn.tolist()
    assert trees.thresholds.dtype == np.float32
    assert trees.depth == max(one.tree_.max_depth for one in real.estimators_)


def test_trees_with_other_comparisons_are_refused():
    task = elsewhere()
    real = forest_like(task, None, 1, 1).fit(task.features, task.target)
    model = treelite.sklearn.import_model(real)
    tree = model.get_tree_accessor(0)
    tree.set_field("cmp", np.full_like(tree.get_field("cmp"), 2))

    with pytest.raises(ValueError, match="tests other than value <= threshold"):
        next(read_trees(model, 3, most=1))


def test_what_cuml_does_not_export_is_structural():
    depth = {"max_depth": Range(min=1, max=5), "min_impurity_decrease": Choice(values=(0.0, 0.1))}
    weighted = {**depth, "class_weight": Choice(values=("none", "balanced"))}

    assert set(structural(Space.of(depth), "gpu").searched) == {"min_impurity_decrease"}
    assert set(structural(Space.of(weighted), "gpu").searched) == {"class_weight", "min_impurity_decrease"}
    drawn_or_not = {**weighted, "bootstrap": Choice(values=(True, False))}
    assert "max_depth" in structural(Space.of(drawn_or_not), "gpu").searched
    assert "max_depth" not in structural(Space.of(drawn_or_not), "cpu").searched


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
def test_a_search_of_an_engine_with_whole_fits_only(model):
    task = elsewhere(model, rows=400)
    space = Space.of(
        {
            "n_estimators": Range(min=4, max=40),
            "max_depth": Range(min=1, max=8),
            "max_features": Choice(values=(0.3, 1.0)),
            "min_samples_leaf": Choice(values=(1, 30)),
        }
    )

    def run(done=()):
        kept = []
        models = [make_candidate("auto", task, space, 4)]
        _, outcome = search(models, 4, earlier_trials=done, on_trial=kept.append)
        return outcome, kept

    outcome, kept = run()
    again, _ = run(done=kept[:2])

    assert outcome.fitted is None
    assert outcome.complete == 1
    assert outcome.best.surface.axes["max_depth"] == tuple(range(1, 9))
    assert len(outcome.best.values) == len(task.folds)
    assert outcome.best.params["min_samples_leaf"] == 1
    assert [trial.value for trial in again.trials] == [trial.value for trial in outcome.trials]
    fitted = task.engine.fit(
        task.model,
        outcome.params,
        task.features,
        task.target,
        n_classes=task.n_classes,
        seed=0,
        threads=1,
    )
    assert task.score(task.truth, fitted.predict(task.features)) > outcome.best.value
