"""The engines on the CPU: what they are given takes effect, and they say so."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmls_core.errors import EngineUnavailableError
from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import engine_class, load_engine
from dmls_core.models.engines.base import shares as as_shares
from dmls_core.spec.definitions import HyperparameterDefinition
from dmls_core.testing.engines import kinds_of, make_data

FAST = {"n_estimators": 5}


def fit(name: str, params: dict | None = None, kind: str = "", seed: int = 1, threads: int = 1):
    model = CATALOGUE[name]
    data = make_data(kind or kinds_of(model)[0])
    return data, load_engine("cpu", model.name).fit(
        model, FAST | (params or {}), data.x, data.y, n_classes=data.n_classes, seed=seed, threads=threads
    )


def other_value(definition: HyperparameterDefinition) -> object:
    """A legal value that is not the default."""
    special = {"n_estimators": 7, "max_samples": 0.5, "bootstrap": True, "max_features": 0.5}
    if definition.name in special:
        return special[definition.name]
    if definition.kind == "bool":
        return not definition.default
    if definition.kind == "choice":
        return next(choice for choice in definition.choices if choice != definition.default)
    if definition.kind in ("int", "count"):
        default = definition.default if isinstance(definition.default, int) else 5
        return default + 3
    return 0.25 if definition.default != 0.25 else 0.5


@pytest.mark.parametrize("name", ["xgboost-classifier", "xgboost-regressor"])
def test_xgboost_itself_confirms_what_was_set(name: str):
    import json

    model = CATALOGUE[name]
    names = [p for p in model.hyperparameters if p not in ("n_estimators", "scale_pos_weight")]
    params = {p: other_value(model.hyperparameters[p]) for p in names}
    _, fitted = fit(name, params, kinds_of(model)[0])

    learner = json.loads(fitted.booster.save_config())["learner"]
    config = learner["gradient_booster"]["tree_train_param"]
    for parameter, value in params.items():
        found = config[parameter]
        assert found == value if isinstance(value, str) else math.isclose(float(found), value, rel_tol=1e-6)
    assert fitted.booster.num_boosted_rounds() == FAST["n_estimators"]


def test_lightgbm_itself_confirms_what_was_set():
    from dmls_core.models.engines.lightgbm import _PARAMETER, ALIASES

    model = CATALOGUE["lightgbm-classifier"]
    names = [p for p in model.hyperparameters if p not in ("n_estimators", "class_weight")]
    params = {p: other_value(model.hyperparameters[p]) for p in names}
    _, fitted = fit("lightgbm-classifier", params)

    text = fitted.booster.model_to_string()
    config = dict(_PARAMETER.findall(text[text.rindex("parameters:") :]))
    for parameter, value in params.items():
        found = config[ALIASES.get(parameter, parameter)]
        assert found == value if isinstance(value, str) else math.isclose(float(found), value, rel_tol=1e-6)


def test_gains_beyond_what_numbers_hold_share_the_importance():
    assert as_shares(np.array([np.inf, 3.0, 0.0, np.inf])).tolist() == [0.5, 0, 0, 0.5]
    assert as_shares(np.array([3.0, 1.0])).tolist() == [0.75, 0.25]


def test_balanced_weights_give_each_class_the_same_total():
    from dmls_core.models.engines.booster import class_weights

    y = np.array([0, 0, 0, 2])
    weights = class_weights(y)

    assert weights[y == 0].sum() == pytest.approx(weights[y == 2].sum())
    assert weights.sum() == pytest.approx(len(y))


def test_effective_writes_defaults_in_and_folds_what_is_the_same():
    model = CATALOGUE["random-forest-classifier"]

    on_gpu = engine_class("gpu", model.name).effective(model, {"criterion": "log_loss", "max_depth": 9})

    assert on_gpu["criterion"] == "entropy"
    assert on_gpu["max_depth"] == 9
    assert on_gpu["n_estimators"] == 100
    assert "ccp_alpha" not in on_gpu


def test_no_engine_fits_the_model_on_the_device():
    with pytest.raises(EngineUnavailableError, match="no installed gpu engine fits lightgbm-classifier"):
        load_engine("gpu", "lightgbm-classifier")


def test_packages_of_the_engine_are_missing():
    if not (missing := engine_class("gpu", "random-forest-classifier").missing_packages()):
        pytest.skip("cuML is installed here")

    with pytest.raises(EngineUnavailableError, match=f"not installed here: {missing[0]}"):
        load_engine("gpu", "random-forest-classifier")
