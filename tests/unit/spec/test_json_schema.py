"""The JSON schema: what an editor completes from agrees with what is admitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli
from jsonschema import Draft202012Validator

from dmls_core.errors import SpecError
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.spec import json_schema
from dmls_core.spec.tables import RESERVED

SCHEMA = json_schema(CATALOGUE)
VALIDATOR = Draft202012Validator(SCHEMA)
IRIS = (Path(__file__).parents[3] / "examples" / "iris" / "spec.toml").read_text()
HEAD = 'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n'


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    "text",
    [
        IRIS,
        HEAD,
        "model = 'auto-classifier'\n[columns]\ntarget='y'\n[lightgbm-classifier.num_leaves]\nvalue = 9",
        HEAD + "[max_depth]\nvalues = [3, 'none']",
        HEAD + "[max_features]\nvalues = ['sqrt', 0.5, 3]",
        HEAD + "[random-forest-classifier.max_depth]\nmin = 3\nmax = 9\nlog = true",
        HEAD + "[tags]\na = 'b'\n[deploy]\nmode = 'auto'\n[resources]\nmemory = '8 GiB'",
        HEAD + "[expectations.columns.a]\nmin = 3\nvalues = [1, 'a', true]",
        HEAD + "[search]\nearly_stop = 20\nstrategy = 'cma-es'",
        HEAD + "[search.early_stop]\ntrials = 20\ntarget = 0.95\nconverged = 5\ntolerance = 0.001",
        "model = ['xgboost-regressor', 'lightgbm-regressor']\n[columns]\ntarget='y'\n[num_leaves]\nvalue = 9",
    ],
)
def test_the_schema_accepts_valid_specs(text: str) -> None:
    assert list(VALIDATOR.iter_errors(tomli.loads(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        IRIS.replace("random-forest-classifier", "random-forest"),
        IRIS.replace("target", "traget"),
        IRIS.replace("n_trials = 5", "n_trials = '5'"),
        IRIS.replace("n_trials = 5", "n_trials = 0"),
        IRIS.replace("n_estimators", "n_estimatrs"),
        IRIS.replace("max = 500", "maximum = 500"),
        IRIS.replace("max = 500", ""),
        IRIS.replace("max = 500", "max = 500.5"),
        IRIS.replace("min = 50", "min = 0"),
        IRIS.replace("log_loss", "logloss"),
        HEAD + "[max_depth]\nvalue = 3\nvalues = [3]",
        HEAD + "[criterion]\nmin = 1\nmax = 2",
        HEAD + "[learning_rate]\nvalue = 0.1",
        HEAD + "[lightgbm-classifier.num_leaves]\nvalue = 9",
        HEAD + "[search]\nstrategy = 'gird'",
        HEAD + "[search]\nearly_stop = 0",
        HEAD + "[search]\nearly_stop = 'never'",
        HEAD + "[search.early_stop]\ntrails = 20",
        HEAD + "[evaluation]\nholdout = 1.5",
        HEAD + "[tags]\na = 1",
        "n_estimators = 100\n" + HEAD,
    ],
)
def test_the_schema_rejects_what_admission_rejects(text: str) -> None:
    assert not VALIDATOR.is_valid(tomli.loads(text))
    with pytest.raises(SpecError):
        load_spec(text.encode())


def test_every_key_has_a_description() -> None:
    properties = SCHEMA["properties"]
    names = {name for model in CATALOGUE.values() for name in model.hyperparameters}
    assert set(properties) == {*RESERVED, *names, *CATALOGUE}
    for name in RESERVED:
        value = properties[name]
        assert value.get("description") or value["anyOf"][0]["description"], name
        for key, field in value.get("properties", {}).items():
            assert field.get("description"), f"{name}.{key}"
    for model in CATALOGUE:
        for name, table in SCHEMA["$defs"][model]["properties"].items():
            assert table["description"], f"{model}.{name}"


def test_the_schema_has_no_null() -> None:
    text = json.dumps(SCHEMA)
    assert '"type": "null"' not in text
    assert '"default": null' not in text


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_default_search_spaces_are_valid(name: str) -> None:
    document = {"model": name, "columns": {"target": "y"}, **CATALOGUE[name].search}
    assert list(VALIDATOR.iter_errors(document)) == []
