"""The nested search of forests on a GPU: the data stays there, and prunings equal forests with that limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmls_core.evaluate import scorer
from dmls_core.models import CATALOGUE, METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.search.candidate import make_candidate
from dmls_core.search.forest.growing import BlockForest, seed_of_block
from dmls_core.search.forest.scoring import prepare_scoring
from dmls_core.search.forest.space import partition_space
from dmls_core.search.optimize import search as find
from dmls_core.search.task import SearchTask, Space, make_folds
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.spec import Choice, Range
from dmls_core.testing.engines import make_data

MODELS = {"random-forest-classifier": "multiclass", "random-forest-regressor": "regression"}


def make_task(name: str, rows: int = 8000) -> SearchTask:
    model, data = CATALOGUE[name], make_data(MODELS[name], rows=rows)
    engine = load_engine("gpu", model.name)
    return SearchTask(
        model=model,
        engine=engine,
        features=engine.place(data.x),
        target=engine.place(data.y),
        truth=data.y,
        n_classes=data.n_classes,
        folds=make_folds(data.y, 3, n_classes=data.n_classes, seed=0),
        score=scorer(model.default_metric),
        direction=METRICS[model.default_metric].direction,
        seed=0,
        threads=4,
    )


def search(task: SearchTask):
    space = Space(
        {
            "n_estimators": Range(min=10, max=60),
            "max_depth": Range(min=2, max=12),
            "max_features": Choice(values=(0.5, 1.0)),
        },
        {},
    )
    return find([make_candidate("auto", task, space, 2)], 2)[1]


@pytest.mark.parametrize("name", list(MODELS))
def test_a_cut_is_the_forest_that_cuml_grows_with_that_limit(name: str):
    task = replace(make_task(name), out_of_bag=False)
    sizes, depths = (5, 20), (1, 3, 6, 10)
    space = Space({"n_estimators": Choice(values=sizes), "max_depth": Choice(values=depths)}, {})
    parts = partition_space(task, space)
    split = prepare_scoring(task, space, len(parts.limits)).splits[0]
    forest = BlockForest(task, parts, split, {}, threads=4)
    assert not isinstance(split.probe, np.ndarray)
    sums = [0.0 for _ in parts.limits]

    for before, size in ((0, sizes[0]), sizes):
        forest.grow(size)
        for cut, setting in enumerate(parts.limits):
            real = task.engine.fit(
                task.model,
                {"n_estimators": size - before, **setting},
                split.features,
                split.target,
                n_classes=task.n_classes,
                seed=seed_of_block(task.seed, before),
                threads=4,
            )
            sums[cut] = sums[cut] + real.predict(split.probe) * (size - before)
            found = forest.prediction(cut, np.arange(len(split.truth)))
            np.testing.assert_allclose(found, sums[cut] / size, atol=1e-4 * np.abs(found).max())


@pytest.mark.parametrize("name", list(MODELS))
def test_out_of_bag_predictions_are_those_of_cuml(name: str):
    from cuml.ensemble import RandomForestClassifier, RandomForestRegressor

    task = make_task(name)
    space = Space({}, {"n_estimators": 40, "max_depth": 8})
    parts = partition_space(task, space)
    (split,) = prepare_scoring(task, space, len(parts.limits)).splits
    forest = BlockForest(task, parts, split, {}, threads=4)
    forest.grow(40)

    fitted, _ = task.engine.fit_block(
        task.model,
        parts.growth_params({}, 40),
        task.features,
        task.target,
        n_classes=task.n_classes,
        seed=seed_of_block(0, 0),
        threads=4,
    )
    kind = RandomForestClassifier if task.n_classes else RandomForestRegressor
    own = kind(**fitted._forest.get_params())
    own.fit(task.features, task.target.astype("int32" if task.n_classes else "float32"))
    expected = task.engine.fetch(own.oob_decision_function_ if task.n_classes else own.oob_prediction_)
    rows = np.flatnonzero(forest.has_votes())
    np.testing.assert_allclose(forest.prediction(0, rows), expected[rows], atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", list(MODELS))
def test_a_search_ends_with_a_model_that_is_exported_as_it_was_fitted(name: str, tmp_path):
    task = make_task(name)

    outcome, again = search(task), search(task)

    assert not isinstance(task.features, np.ndarray)
    assert outcome.complete == 1
    assert outcome.best.value > 0.5
    assert set(outcome.best.surface.axes) == {"n_estimators", "max_depth"}
    assert [trial.params for trial in again.trials] == [trial.params for trial in outcome.trials]
    fitted = task.engine.fit(
        task.model,
        outcome.params,
        task.features,
        task.target,
        n_classes=task.n_classes,
        seed=0,
        threads=4,
    )
    loaded = checkpoint.export(fitted.to_treelite(), tmp_path / "checkpoint.tl")
    own = fitted.predict(task.features)
    check_parity(own, checkpoint.predict(loaded, task.engine.fetch(task.features)))
