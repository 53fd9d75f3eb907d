"""Times, groups and weights reach the search, the fit and the scores, in memory and from disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import RandomForestRegressor

from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.catalogue import load_engine
from dmls_core.search.candidate import make_candidate
from dmls_core.search.forest.scoring import prepare_scoring
from dmls_core.search.optimize import search as find
from dmls_core.search.task import SearchTask, Space
from dmls_core.spec import Choice, Range, Spec
from dmls_core.stored_matrix import StoredMatrix
from dmls_core.training.prepare import make_task, prepare

ROWS = 600
MODELS = ("random-forest", "extra-trees", "xgboost", "lightgbm")
ROLES = {
    "time": ('time = "when"', 'split = "time"'),
    "group": ('group = "who"', ""),
    "duplicates": ("", "group_duplicates = true"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    generator = np.random.default_rng(0)
    noise, a = generator.normal(size=ROWS), generator.normal(size=ROWS).round(1)
    frame = pl.DataFrame(
        {
            "a": a,
            "b": generator.integers(0, 3, ROWS),
            "when": generator.permutation(ROWS) // 2 + 1_000_000,
            "who": [f"p{at}" for at in generator.integers(0, 40, ROWS)],
            "w": generator.uniform(0.8, 1.2, ROWS),
            "y": a + 0.1 * noise,
        }
    ).with_columns(pl.from_epoch("when", time_unit="s"))
    found = tmp_path_factory.mktemp("data") / "data.parquet"
    frame.write_parquet(found)
    return found


def spec_of(columns: str, evaluation: str = "", family: str = "random-forest") -> Spec:
    return load_spec(
        f'model = "{family}-regressor"\nn_trials = 2\n[columns]\ntarget = "y"\nfeatures = ["a", "b"]\n'
        f"{columns}\n[evaluation]\n{evaluation}\n".encode()
    )


def task_of(spec: Spec, path: Path, folder: Path | None = None) -> SearchTask:
    model = CATALOGUE[spec.model]
    data = prepare(spec, model, [path], folder=folder)
    return make_task(spec, model, load_engine("cpu", model.name), data)


@pytest.mark.parametrize("role", list(ROLES))
@pytest.mark.parametrize("family", MODELS)
def test_a_search_scores_no_row_out_of_bag_of_its_own_group_or_past(path, role, family):
    spec = spec_of(*ROLES[role], family=family)
    task = task_of(spec, path)
    plain = task_of(spec_of("", family=family), path)

    assert (task.out_of_bag, plain.out_of_bag) == (False, True)
    if family == "random-forest":
        space = Space.of({"n_estimators": Range(min=5, max=10)})
        assert prepare_scoring(plain, space, 1).out_of_bag
        scoring = prepare_scoring(task, space, 1)
        assert not scoring.out_of_bag
        assert [len(split.features) for split in scoring.splits] == [len(fold.train) for fold in task.folds]
    outcome = search(task)
    assert np.isfinite(outcome.best.value)
    assert search(task).best.value == outcome.best.value


def search(task: SearchTask):
    trees = Choice(values=(12,)) if "forest" in task.model.name else Range(min=5, max=20)
    space = Space.of({"n_estimators": trees, "max_depth": Range(min=3, max=5)})
    return find([make_candidate("auto", task, space, 2)], 2)[1]


@pytest.mark.parametrize("role", list(ROLES))
def test_data_on_disk_has_the_folds_of_data_in_memory(path, role, tmp_path):
    spec = spec_of(f'{ROLES[role][0]}\nweight = "w"', ROLES[role][1], family="xgboost")

    own, stored = task_of(spec, path), task_of(spec, path, tmp_path / "stored")

    assert isinstance(stored.features, StoredMatrix)
    assert (own.truth == stored.truth).all()
    assert (own.weights == stored.weights).all()
    assert (own.folds[0].test == stored.folds[0].test).all()
    params = {"n_estimators": 5}
    rows = np.arange(50)
    one, other = (task.fit(params).predict(task.features[rows]) for task in (own, stored))
    assert one == pytest.approx(other, abs=0.05)


def test_a_weighted_nested_search_grows_the_forest_of_scikit_learn(path):
    task = task_of(spec_of('weight = "w"'), path)
    scoring = prepare_scoring(task, Space.of({}), 1)
    assert scoring.out_of_bag
    outcome = search(task)

    assert outcome.fitted is not None
    forest = RandomForestRegressor(12, max_depth=outcome.params["max_depth"], random_state=0)
    codes = scoring.splits[0].features
    forest.fit(codes, task.truth, task.weights)
    assert outcome.fitted.predict(task.features) == pytest.approx(forest.predict(codes))


def test_very_unequal_weights_are_scored_on_folds(path):
    task = task_of(spec_of('weight = "w"'), path)
    assert task.weights is not None
    task.weights[0] = 100.0
    assert not prepare_scoring(task, Space.of({}), 1).out_of_bag
