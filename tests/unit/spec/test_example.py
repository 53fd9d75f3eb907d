"""The first spec that a user ever writes works as it stands, with every default written in."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core.models import CATALOGUE, load_spec
from dmls_core.spec import Choice, ModelSearch, Range, Spec

IRIS = Path(__file__).parents[3] / "examples" / "iris" / "spec.toml"


@pytest.fixture(scope="module")
def iris() -> Spec:
    return load_spec(IRIS.read_bytes(), str(IRIS))


def test_the_example_is_parsed(iris: Spec) -> None:
    assert iris.model == "random-forest-classifier"
    assert iris.n_trials == 5
    assert iris.columns.features == ("sepal_length", "sepal_width", "petal_length", "petal_width")
    assert iris.columns.target == "species"
    (search,) = iris.models
    assert search.searched == {
        "n_estimators": Range(min=50, max=500),
        "criterion": Choice(values=("gini", "entropy", "log_loss")),
    }


def test_the_parsed_spec_has_every_default(iris: Spec) -> None:
    assert iris.task == "classification"
    assert iris.search.metric == "accuracy"
    assert iris.search.strategy == "auto"
    assert (iris.search.folds, iris.search.seed, iris.search.workers) == (3, 0, 1)
    assert (iris.evaluation.holdout, iris.evaluation.split) == (0.2, "stratified")
    assert iris.deploy.mode == "manual"
    assert iris.resources.engine == "auto"
    assert iris.schedule is None
    (search,) = iris.models
    assert set(search.hyperparameters) == set(CATALOGUE[iris.model].hyperparameters)
    assert search.fixed["max_depth"] == "none"
    assert search.fixed["bootstrap"] is True


def test_regressors_have_other_defaults() -> None:
    spec = load_spec(b'model = "xgboost-regressor"\n[columns]\ntarget = "price"')
    assert spec.task == "regression"
    assert spec.search.metric == "r2"
    assert spec.evaluation.split == "random"
    assert spec.columns.features == ()


def test_a_spec_without_hyperparameters_searches_the_catalogues_space() -> None:
    spec = load_spec(b'model = "lightgbm-classifier"\n[columns]\ntarget = "y"')
    (search,) = spec.models
    assert search.hyperparameters["num_leaves"] == Range(min=8, max=128, log=True)
    assert search.fixed["learning_rate"] == "auto"
    assert set(search.searched) == set(CATALOGUE["lightgbm-classifier"].search) - {"learning_rate"}
    assert spec.n_trials == 20


def test_one_listed_hyperparameter_leaves_the_others_at_their_defaults() -> None:
    spec = load_spec(b'model = "lightgbm-classifier"\n[columns]\ntarget = "y"\n[num_leaves]\nmin=8\nmax=64')
    assert set(spec.models[0].searched) == {"num_leaves"}


@pytest.mark.parametrize(
    ("tables", "n_trials"),
    [
        ("[n_estimators]\nvalue = 100", 1),
        ('[criterion]\nvalues = ["gini", "entropy"]\n[n_estimators]\nvalues = [10, 20, 30]', 6),
        ("[n_estimators]\nmin = 10\nmax = 500", 20),
        ("[ccp_alpha]\nmin = 0.0\nmax = 0.1", 20),
        ("[ccp_alpha]\nmin = 0.0\nmax = 0.1\nstep = 0.05", 3),
    ],
)
def test_trials_default_to_twenty_or_the_size_of_the_space(tables: str, n_trials: int) -> None:
    text = f'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n{tables}'
    assert load_spec(text.encode()).n_trials == n_trials


def test_the_order_of_values_matters_and_that_of_tables_does_not() -> None:
    head = b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n'
    depth, trees = b"[max_depth]\nvalues = [3, 4]\n", b"[n_estimators]\nvalue = 9\n"
    one, other = load_spec(head + depth + trees), load_spec(head + trees + depth)
    assert one.sha256 == other.sha256
    assert list(one.models[0].hyperparameters) == list(other.models[0].hyperparameters)
    turned = load_spec(head + b"[max_depth]\nvalues = [4, 3]\n" + trees)
    assert turned.sha256 != one.sha256


def test_every_available_table_is_accepted() -> None:
    spec = load_spec(
        b"""
        model = "xgboost-classifier"
        n_trials = 7
        [columns]
        features = ["a", "b", "sepal length (cm)"]
        target = "y"
        categorical = ["b"]
        drop = ["c"]
        id = "row"
        [data]
        path = "part-*.csv"
        format = "csv"
        [search]
        strategy = "tpe"
        metric = "neg_log_loss"
        timeout = 600
        folds = 5
        seed = 42
        [evaluation]
        holdout = 0.25
        split = "random"
        [expectations]
        min_rows = 100
        max_missing = 0.5
        [expectations.columns."sepal length (cm)"]
        min = 0
        max = 10.5
        max_missing = 0.1
        [expectations.columns.b]
        values = ["x", "y", 1, 1.0, true]
        pattern = "^[a-z]$"
        unique = true
        [deploy]
        mode = "auto"
        min_metric = 0.9
        [resources]
        engine = "gpu"
        gpus = 1
        memory = "8 GiB"
        [owner]
        name = "Flower team"
        email = "flowers@example.com"
        [tags]
        "cost centre" = "1234"
        [learning_rate]
        min = 0.01
        max = 1
        log = true
        """
    )
    assert spec.search.metric == "log_loss"
    assert spec.expectations.columns["b"].values == ("x", "y", 1, 1.0, True)
    assert spec.resources.memory == "8 GiB"
    rate = spec.models[0].hyperparameters["learning_rate"]
    assert isinstance(rate, Range)
    assert (rate.min, rate.max) == (0.01, 1.0)
    assert isinstance(rate.max, float)
    assert spec.models == (
        ModelSearch(name="xgboost-classifier", hyperparameters=spec.models[0].hyperparameters),
    )
    assert Spec.from_json(spec.as_json()) == spec


def test_a_byte_order_mark_is_accepted() -> None:
    assert load_spec(b"\xef\xbb\xbf" + IRIS.read_bytes()).sha256 == load_spec(IRIS.read_bytes()).sha256


def test_windows_line_endings_are_accepted() -> None:
    windows = IRIS.read_bytes().replace(b"\n", b"\r\n")
    assert load_spec(windows).sha256 == load_spec(IRIS.read_bytes()).sha256
