from __future__ import annotations

import json

import pytest

from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.form import catalogue_form, suggest
from dmls_core.spec.toml_io import toml_text

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
    forest = form["models"][0]
    assert forest["metrics"][0]["name"] == forest["default_metric"] == "accuracy"
    depth = next(entry for entry in forest["hyperparameters"] if entry["name"] == "max_depth")
    assert (depth["kind"], depth["choices"], depth["suggested"]) == ("int", ["none"], {"min": 4, "max": 24})
