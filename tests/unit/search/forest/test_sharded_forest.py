"""Forests on two workers of Dask, in this process: those that scikit-learn fits on each worker's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import treelite
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor

from dmls_core.models.cluster import Cluster, ShardedMatrix, deal
from dmls_core.models.engines.sharded_forests import shard_seed
from dmls_core.search.forest.scoring import Bins
from dmls_core.search.forest.sharded_forest import ShardedForest, prepare_shards
from dmls_core.search.forest.space import partition_space
from dmls_core.search.task import Fold, SearchTask, Space
from dmls_core.spec import Choice
from tests.unit.search.forest.conftest import CLASSIFIER, REGRESSOR, SPACE, make_task, search

CUTS = {"max_depth": Choice(values=(1, 3, "none")), "min_samples_split": Choice(values=(30, 0.2))}
SIZES = Choice(values=(2, 5, 12))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    from distributed import Client

    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        yield Cluster(client, 2, "127.0.0.1", lambda _: None)


def on_cluster(task: SearchTask, cluster: Cluster, folder: Path) -> SearchTask:
    (folder / "matrix").write_bytes(task.features.tobytes(order="F"))
    file = np.memmap(folder / "matrix", np.float32, "r", shape=task.features.shape, order="F")
    return replace(task, features=ShardedMatrix(file, np.arange(len(file)), cluster))


def fit_shards(task: SearchTask, x: np.ndarray, trees: int, **params):
    """Fit each worker's part of a forest with ``trees`` trees; return these with the owners of the rows."""
    owners = deal(len(x), 2, task.seed)
    kind = RandomForestClassifier if task.n_classes else RandomForestRegressor
    params = {name: None if value == "none" else value for name, value in params.items()}
    forests = [
        kind(len(range(own, trees, 2)), random_state=shard_seed(task.seed, own), **params).fit(
            x[owners == own], task.truth[owners == own]
        )
        for own in range(2)
    ]
    return forests, owners


def answers(task: SearchTask, forest, x: np.ndarray) -> np.ndarray:
    """Return the sum of the trees' predictions, in columns for all classes."""
    one = forest.predict_proba(x) if task.n_classes else forest.predict(x)
    return one * len(forest.estimators_)


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
def test_each_tree_is_scored_on_the_rows_of_the_other_worker(model: str, cluster: Cluster, tmp_path: Path):
    # With one column no random draw depends on how many nodes were split before.
    alone = make_task(model, columns=1)
    task = on_cluster(alone, cluster, tmp_path)
    parts = partition_space(task, Space({**CUTS, "n_estimators": SIZES}, {}))
    forest = ShardedForest(task, parts, prepare_shards(task, len(parts.limits)).splits[0], {})
    codes = Bins.of(alone.features, seed=task.seed).encode(alone.features)
    for size in SIZES.values:
        forest.grow(size)
        found = forest.scores()
        for limit, score in zip(parts.limits, found, strict=True):
            (first, second), owners = fit_shards(task, codes, size, **limit)
            first_rows = (owners == 1).reshape(-1, *[1] * bool(task.n_classes))
            both = (answers(task, first, codes), answers(task, second, codes))
            counts = np.where(owners == 1, len(first.estimators_), len(second.estimators_))
            mean = np.where(first_rows, *both) / counts.reshape(first_rows.shape)
            assert score == pytest.approx(task.score(task.truth, mean, None), abs=1e-12)
    assert forest.voting_share() == 0.5
    assert len(set(found)) > 2


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
def test_the_model_of_a_search_has_the_trees_of_both_workers(model: str, cluster: Cluster, tmp_path: Path):
    alone = make_task(model)
    task = on_cluster(alone, cluster, tmp_path)
    space = {name: wanted for name, wanted in SPACE.items() if name != "max_depth"}
    outcome, _ = search(task, space, n_trials=3)
    assert outcome.fitted is not None
    params = dict(outcome.best.params)
    trees = int(params.pop("n_estimators"))
    codes = Bins.of(alone.features, seed=task.seed).encode(alone.features)
    forests, _ = fit_shards(task, codes, trees, **params)
    both = [answers(task, forest, codes) for forest in forests]
    assert outcome.fitted.predict(alone.features) == pytest.approx(sum(both) / trees)
    recorded = outcome.fitted.parameters()
    assert (recorded["n_estimators"], recorded["random_state"]) == (trees, task.seed)


def test_the_model_is_the_same_if_one_worker_is_left(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from distributed import Client

    monkeypatch.setattr("dmls_core.models.cluster.RETURN_SECONDS", 0.0)
    alone, notes = make_task(), []
    (both, trials) = search(on_cluster(alone, cluster, tmp_path), n_trials=2)
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        last = Cluster(client, 2, "127.0.0.1", notes.append)
        (one, again) = search(on_cluster(alone, last, tmp_path), n_trials=2)
    assert notes == ["1 of 2 nodes are left: the fit goes on with these"]
    assert [trial.values for trial in again] == [trial.values for trial in trials]
    assert np.array_equal(one.fitted.predict(alone.features), both.fitted.predict(alone.features))


def test_the_model_is_pruned_as_it_was_scored(cluster: Cluster, tmp_path: Path):
    alone = make_task()
    task = on_cluster(alone, cluster, tmp_path)
    (outcome, _), (again, _) = search(task, n_trials=2), search(task, n_trials=2)
    found = outcome.fitted.predict(alone.features)
    assert np.array_equal(found, again.fitted.predict(alone.features))
    depths = [estimator.get_depth() for estimator in outcome.fitted.forest.estimators_]
    assert len(depths) == outcome.best.params["n_estimators"]
    assert max(depths) == outcome.best.params["max_depth"]


def test_a_worker_may_lack_a_class(cluster: Cluster, tmp_path: Path):
    alone = make_task(classes=2)
    truth = alone.truth.copy()
    truth[7] = 2
    task = on_cluster(replace(alone, truth=truth, target=truth, n_classes=3), cluster, tmp_path)
    fitted = task.fit({"n_estimators": 5, "max_depth": 4})
    forests, owners = fit_shards(task, alone.features, 5, max_depth=4)
    both = [np.zeros((200, 3)), np.zeros((200, 3))]
    for found, forest in zip(both, forests, strict=True):
        found[:, forest.classes_] = answers(task, forest, alone.features)
    assert [len(forest.classes_) for forest in forests] == ([3, 2] if owners[7] == 0 else [2, 3])
    assert fitted.predict(alone.features) == pytest.approx(sum(both) / 5)
    served = treelite.gtil.predict(fitted.to_treelite(), alone.features).reshape(200, 3)
    assert served == pytest.approx(fitted.predict(alone.features), abs=1e-6)
    assert np.array_equal(task.fit({"n_estimators": 1}).predict(alone.features).shape, (200, 3))

    outcome, _ = search(task, n_trials=2)
    assert outcome.fitted is not None
    assert outcome.fitted.predict(alone.features).shape == (200, 3)


def test_groups_and_times_are_scored_on_a_fold(cluster: Cluster, tmp_path: Path):
    alone = make_task("extra-trees-classifier")
    fold = Fold(train=np.arange(0, 150), test=np.arange(150, 200))
    dependent = replace(alone, out_of_bag=False, folds=(fold,))
    task = on_cluster(dependent, cluster, tmp_path)
    parts = partition_space(task, Space({}, {"n_estimators": 8}))
    forest = ShardedForest(task, parts, prepare_shards(task, 1).splits[0], {})
    forest.grow(8)
    owners = deal(150, 2, task.seed)
    found = [
        ExtraTreesClassifier(4, random_state=shard_seed(task.seed, own))
        .fit(alone.features[:150][owners == own], alone.truth[:150][owners == own])
        .predict_proba(alone.features[150:])
        for own in range(2)
    ]
    assert forest.scores() == (pytest.approx(task.score(alone.truth[150:], sum(found) / 2, None)),)
    outcome, _ = search(task, n_trials=2)
    assert outcome.fitted is None
