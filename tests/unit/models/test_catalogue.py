"""The catalogue, and its form."""

from __future__ import annotations

import json
from typing import Any

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn import ensemble
from sklearn.metrics import get_scorer, get_scorer_names

from dmls_core.errors import SpecError
from dmls_core.models import CATALOGUE, METRICS, engine_class, for_engine, load_spec
from dmls_core.models.catalogue import catalogue_form, load_engine, suggest
from dmls_core.search.task import Space
from dmls_core.spec import Choice, HyperparameterDefinition, ModelDefinition, Range, Scalar
from dmls_core.spec.definitions import AUTO
from dmls_core.spec.tables import RESERVED
from dmls_core.spec.toml_io import toml_text

ESTIMATORS: dict[str, Any] = {
    "random-forest-classifier": ensemble.RandomForestClassifier,
    "random-forest-regressor": ensemble.RandomForestRegressor,
    "extra-trees-classifier": ensemble.ExtraTreesClassifier,
    "extra-trees-regressor": ensemble.ExtraTreesRegressor,
    "xgboost-classifier": xgboost.XGBClassifier,
    "xgboost-regressor": xgboost.XGBRegressor,
    "lightgbm-classifier": lightgbm.LGBMClassifier,
    "lightgbm-regressor": lightgbm.LGBMRegressor,
}
FORESTS = [name for name in CATALOGUE if CATALOGUE[name].family in ("random-forest", "extra-trees")]
CATBOOST = [name for name in CATALOGUE if CATALOGUE[name].family == "catboost"]
LEAST = {"learning_rate": 1e-6, "subsample": 0.1}
"""CatBoost refuses smaller values: a rate that is 0 in single precision, or a sample without rows."""
BOOSTED = [name for name in ESTIMATORS if name not in FORESTS]
HYPERPARAMETERS = [(model, name) for model in CATALOGUE for name in CATALOGUE[model].hyperparameters]
FOREST = CATALOGUE["random-forest-classifier"]


def in_the_library(model: str, name: str, value: Scalar) -> Scalar | None:
    (translated,) = engine_class("cpu", model).library_arguments({name: value}).values()
    return translated


def extremes(definition: HyperparameterDefinition) -> list[Scalar]:
    """Return every word, and the smallest and largest number, that the catalogue calls legal."""
    values: list[Scalar] = list(definition.choices)
    if definition.kind == "bool":
        values += [True, False]
    if definition.low is not None and definition.high is not None:
        values += [definition.low + 1e-9 if definition.low_open else definition.low, definition.high]
    if definition.kind == "count":
        values += [1e-9, definition.share_high]
    return values


def test_the_models_and_their_engines() -> None:
    assert {name: model.engines for name, model in CATALOGUE.items()} == {
        "random-forest-classifier": ("cpu", "gpu"),
        "random-forest-regressor": ("cpu", "gpu"),
        "extra-trees-classifier": ("cpu",),
        "extra-trees-regressor": ("cpu",),
        "catboost-classifier": ("cpu",),
        "catboost-regressor": ("cpu",),
        "xgboost-classifier": ("cpu", "gpu"),
        "xgboost-regressor": ("cpu", "gpu"),
        "lightgbm-classifier": ("cpu",),
        "lightgbm-regressor": ("cpu",),
    }
    for name, model in CATALOGUE.items():
        assert model.name == name
        assert name.endswith("classifier") == (model.task == "classification")
        assert name.startswith(model.family)


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_name_means_two_things(name: str) -> None:
    model = CATALOGUE[name]
    assert not set(model.hyperparameters) & {*RESERVED, *CATALOGUE}
    assert set(model.search) <= set(model.hyperparameters)
    for requirement in model.requirements:
        assert {requirement.name, requirement.needs} <= set(model.hyperparameters)
        assert requirement.name not in model.search
    for key, definition in model.hyperparameters.items():
        assert definition.name == key
        assert definition.description.endswith(".")


@pytest.mark.parametrize("name", FORESTS)
def test_defaults_are_scikit_learns(name: str) -> None:
    known = ESTIMATORS[name]().get_params()
    for key, definition in CATALOGUE[name].hyperparameters.items():
        expected = known[key]
        found = in_the_library(name, key, definition.default)
        assert (type(found), found) == (type(expected), expected), key


def test_defaults_are_lightgbms() -> None:
    for name in ("lightgbm-classifier", "lightgbm-regressor"):
        known = ESTIMATORS[name]().get_params() | {"max_bin": 255, "subsample_freq": 1}
        for key, definition in CATALOGUE[name].hyperparameters.items():
            assert in_the_library(name, key, definition.default) == known[key], key


def test_defaults_are_xgboosts() -> None:
    features, labels = np.random.default_rng(0).random((20, 2)), np.arange(20) % 2
    model = xgboost.XGBClassifier(n_estimators=1).fit(features, labels)
    learner = json.loads(model.get_booster().save_config())["learner"]
    known = learner["gradient_booster"]["tree_train_param"] | {
        "scale_pos_weight": learner["objective"]["reg_loss_param"]["scale_pos_weight"],
        "n_estimators": "100",
        "grow_policy": "depthwise",
    }
    own_names = {"reg_alpha": "alpha", "reg_lambda": "lambda"}
    for key, definition in CATALOGUE["xgboost-classifier"].hyperparameters.items():
        found = in_the_library("xgboost-classifier", key, definition.default)
        expected = known[own_names.get(key, key)]
        if key == "grow_policy":
            assert found == expected
        else:
            assert float(found) == pytest.approx(float(expected)), key


def test_defaults_are_catboosts() -> None:
    quiet = {"iterations": 1, "allow_writing_files": False, "logging_level": "Silent", "learning_rate": 0.03}
    rows = np.random.default_rng(0).random((200, 2))
    known = catboost.CatBoost(quiet).fit(rows, rows[:, 0]).get_all_params() | {"iterations": 1_000}
    for key, definition in CATALOGUE["catboost-regressor"].hyperparameters.items():
        engine = engine_class("cpu", "catboost-regressor")
        ((name, value),) = engine.library_arguments({key: definition.default}).items()
        assert value == pytest.approx(known[name]), key


@pytest.mark.parametrize(("model", "name"), [pair for pair in HYPERPARAMETERS if pair[0] in CATBOOST])
def test_catboost_takes_all_that_the_catalogue_calls_legal(model: str, name: str) -> None:
    rng = np.random.default_rng(0)
    features, target = rng.random((60, 3), np.float32), rng.integers(0, 2, 60)
    for value in extremes(CATALOGUE[model].hyperparameters[name]):
        if value == "auto":
            continue  # the search replaces it
        if name == "n_estimators":
            value = min(value, 2)
        params = {"n_estimators": 2, name: max(value, LEAST[name]) if name in LEAST else value}
        classes = 2 * (CATALOGUE[model].task == "classification")
        fitted = load_engine("cpu", model).fit(
            CATALOGUE[model], params, features, target, n_classes=classes, seed=0, threads=1
        )
        assert np.isfinite(fitted.predict(features)).all()


@pytest.mark.parametrize(("model", "name"), [pair for pair in HYPERPARAMETERS if pair[0] in FORESTS])
def test_scikit_learn_takes_all_that_the_catalogue_calls_legal(model: str, name: str) -> None:
    definition = CATALOGUE[model].hyperparameters[name]
    for value in extremes(definition):
        ESTIMATORS[model](**{name: in_the_library(model, name, value)})._validate_params()


@pytest.mark.parametrize(("model", "name"), [pair for pair in HYPERPARAMETERS if pair[0] in BOOSTED])
@pytest.mark.filterwarnings("ignore")
def test_boosting_takes_all_that_the_catalogue_calls_legal(model: str, name: str) -> None:
    rng = np.random.default_rng(0)
    features, target = rng.random((60, 3)), rng.integers(0, 2, 60)
    definition = CATALOGUE[model].hyperparameters[name]
    for value in extremes(definition):
        if name == "n_estimators":
            value = min(value, 2)
        if value == "auto":
            continue  # the search replaces it
        kwargs = {"n_estimators": 2, "n_jobs": 1, name: in_the_library(model, name, value)}
        if CATALOGUE[model].family == "lightgbm":
            kwargs["verbose"] = -1
        prediction = ESTIMATORS[model](**kwargs).fit(features, target).predict(features)
        assert np.isfinite(prediction).all()


@pytest.mark.filterwarnings("ignore")
def test_subsample_does_something_in_lightgbm() -> None:
    rng = np.random.default_rng(0)
    features, target = rng.random((200, 3)), rng.random(200)
    definition = CATALOGUE["lightgbm-regressor"].hyperparameters["subsample_freq"]
    whole, half = (
        lightgbm.LGBMRegressor(n_estimators=3, subsample=share, subsample_freq=definition.default, verbose=-1)
        .fit(features, target)
        .predict(features)
        for share in (1.0, 0.5)
    )
    assert not np.array_equal(whole, half)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_spec_that_lists_nothing_is_searched(name: str) -> None:
    spec = load_spec(f"model = '{name}'\n[columns]\ntarget = 'y'".encode())
    assert set(spec.models[0].searched) == set(CATALOGUE[name].search) - {"learning_rate"}
    assert spec.search.metric == CATALOGUE[name].default_metric


def test_metrics_are_scikit_learns_and_their_directions_are_right() -> None:
    scorers = set(get_scorer_names())
    for name, metric in METRICS.items():
        assert metric.name == name
        (scorer, *_) = [known for known in (name, *metric.aliases) if known in scorers]
        assert (get_scorer(scorer)._sign > 0) == (metric.direction == "maximize"), name
    aliases = [alias for metric in METRICS.values() for alias in (metric.name, *metric.aliases)]
    assert len(aliases) == len(set(aliases))


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_models_metrics_are_those_of_its_task(name: str) -> None:
    model = CATALOGUE[name]
    assert model.default_metric in model.metrics
    assert {metric.task for metric in model.metrics.values()} == {model.task}


def space(model: ModelDefinition, **spaces: Range | Choice) -> dict[str, Range | Choice]:
    defaults = {key: Choice(values=(h.default,)) for key, h in model.hyperparameters.items()}
    return defaults | spaces


def test_what_cuml_takes_for_the_same_becomes_one() -> None:
    wanted = space(FOREST, criterion=Choice(values=("gini", "log_loss", "entropy")))
    assert for_engine(FOREST, wanted, "gpu")["criterion"] == Choice(values=("gini", "entropy"))
    assert for_engine(FOREST, wanted, "cpu") == wanted
    alone = space(FOREST, criterion=Choice(values=("log_loss",)))
    assert for_engine(FOREST, alone, "gpu")["criterion"] == Choice(values=("entropy",))


def test_what_cuml_does_not_have_drops_out_at_its_default() -> None:
    found = for_engine(FOREST, space(FOREST), "gpu")
    assert set(FOREST.hyperparameters) - set(found) == {"ccp_alpha", "min_weight_fraction_leaf"}


@pytest.mark.parametrize(
    ("name", "wanted", "key"),
    [
        ("ccp_alpha", Range(min=0.0, max=0.1), "ccp_alpha"),
        ("ccp_alpha", Choice(values=(0.1,)), "ccp_alpha"),
        ("class_weight", Choice(values=("none", "balanced_subsample")), "class_weight"),
        ("max_samples", Choice(values=("none", 100)), "max_samples"),
        ("max_samples", Range(min=10, max=100), "max_samples"),
    ],
)
def test_what_cuml_cannot_do_is_an_error(name: str, wanted: Range | Choice, key: str) -> None:
    with pytest.raises(SpecError) as raised:
        for_engine(FOREST, space(FOREST, **{name: wanted}), "gpu")
    assert [issue.key for issue in raised.value.issues] == [key]
    for_engine(FOREST, space(FOREST, **{name: wanted}), "cpu")


def test_a_share_of_the_rows_is_fine_on_cuml() -> None:
    wanted = space(FOREST, max_samples=Range(min=0.25, max=1.0))
    assert for_engine(FOREST, wanted, "gpu")["max_samples"] == Range(min=0.25, max=1.0)


def test_an_engine_that_a_model_lacks_is_an_error() -> None:
    model = CATALOGUE["extra-trees-regressor"]
    with pytest.raises(SpecError, match="extra-trees-regressor has no gpu engine"):
        for_engine(model, space(model), "gpu")


def test_a_model_that_no_package_serves_is_an_error_unless_nothing_is_deployed(monkeypatch) -> None:
    monkeypatch.setattr(engine_class("cpu", "lightgbm-classifier"), "export_format", "npy")
    source = 'model = ["random-forest-classifier", "lightgbm-classifier"]\n[columns]\ntarget = "y"\n'
    with pytest.raises(SpecError) as raised:
        load_spec(source.encode())
    (issue,) = raised.value.issues
    assert issue.key == "deploy.mode"
    assert issue.message.startswith("lightgbm-classifier can be trained, but not deployed")
    assert '"never"' in issue.expected
    assert load_spec(f'{source}[deploy]\nmode = "never"'.encode()).deploy.mode == "never"
    assert load_spec(source.encode(), deploys=False).deploy.mode == "manual"


ALL = [(model, name) for model in CATALOGUE.values() for name in model.hyperparameters]


@pytest.mark.parametrize(("model", "name"), ALL, ids=[f"{m.name}-{n}" for m, n in ALL])
def test_every_suggestion_is_valid_as_it_stands(model, name):
    needed = {rule.needs: {"value": rule.value} for rule in model.requirements if rule.name == name}
    document = {"model": model.name, "columns": {"target": "y"}, name: suggest(model, name), **needed}

    (search,) = load_spec(toml_text(document).encode()).models

    assert search.hyperparameters[name].size != 1


def test_the_form_has_every_model_and_is_plain_data():
    form = json.loads(json.dumps(catalogue_form(), allow_nan=False))

    assert [model["name"] for model in form["models"]] == list(CATALOGUE)
    assert {one["name"]: (one["task"], tuple(one["models"])) for one in form["auto"]} == {
        "auto-classifier": ("classification", AUTO["auto-classifier"]),
        "auto-regressor": ("regression", AUTO["auto-regressor"]),
    }
    forest = form["models"][0]
    assert forest["metrics"][0]["name"] == forest["default_metric"] == "accuracy"
    depth = next(entry for entry in forest["hyperparameters"] if entry["name"] == "max_depth")
    assert (depth["kind"], depth["choices"], depth["suggested"]) == ("int", ["none"], {"min": 4, "max": 24})


@pytest.mark.parametrize("name", BOOSTED)
def test_a_portfolio_has_points_of_the_default_search_space(name: str) -> None:
    model = CATALOGUE[name]
    spec = load_spec(f'model = "{name}"\n[columns]\ntarget = "y"\n'.encode())
    space = Space.of({key: one for key, one in spec.models[0].searched.items() if key != "n_estimators"})
    assert model.portfolio
    for point in model.portfolio:
        assert point.keys() == space.searched.keys()  # without a learning rate
        assert space.contains(point), point
