"""The FIL stand-in against the libraries whose models it serves, Triton's side played by a stub."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treelite

from dmls_core.serving.endpoint import private_memory
from dmls_core.serving.formats.treelite import gtil
from dmls_core.serving.formats.treelite.serving_format import TreeliteFormat


class TritonModelException(Exception):  # noqa: N818 - Triton's own name
    pass


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> np.ndarray:
        return self.array


@pytest.fixture(scope="module")
def stand_in() -> Any:
    stub = types.ModuleType("triton_python_backend_utils")
    stub.TritonModelException = TritonModelException
    stub.Tensor = Tensor
    stub.Logger = types.SimpleNamespace(log_info=lambda _: None)
    stub.get_input_tensor_by_name = lambda request, name: request[name]
    stub.InferenceResponse = lambda tensors: {tensor.name: tensor.array for tensor in tensors}
    spec = importlib.util.spec_from_file_location(
        "fil_stand_in", str(TreeliteFormat().stand_in()["model.py"])
    )
    module = importlib.util.module_from_spec(spec)
    found = {"triton_python_backend_utils": stub, "gtil": gtil, "private_memory": private_memory}
    sys.modules.update(found)
    try:
        spec.loader.exec_module(module)
    finally:
        for name in found:
            del sys.modules[name]
    return module


@pytest.fixture
def load(stand_in: Any, tmp_path: Path) -> Callable[..., Any]:
    def load(model: treelite.Model, n_features: int, n_outputs: int, **parameters: str) -> Any:
        folder = tmp_path / "1"
        folder.mkdir(exist_ok=True)
        model.serialize(folder / "checkpoint.tl")
        parameters = {"model_type": "treelite_checkpoint", **parameters}
        config = {
            "input": [{"name": "input__0", "data_type": "TYPE_FP32", "dims": [str(n_features)]}],
            "output": [{"name": "output__0", "data_type": "TYPE_FP32", "dims": [str(n_outputs)]}],
            "parameters": {name: {"string_value": value} for name, value in parameters.items()},
        }
        instance = stand_in.TritonPythonModel()
        arguments = {"model_name": "m", "model_version": "1", "model_repository": str(tmp_path)}
        instance.initialize({**arguments, "model_config": json.dumps(config)})
        return instance

    return load


def ask(instance: Any, *batches: np.ndarray) -> list[np.ndarray]:
    answers = instance.execute([{"input__0": Tensor("input__0", batch)} for batch in batches])
    return [answer["output__0"] for answer in answers]


PROBABILITIES = {"output_class": "true", "is_classifier": "true", "predict_proba": "true", "threshold": "0.5"}
X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
THREE = (X[:, 0] * 2 + X[:, 1]).round().clip(-1, 1).astype(int) + 1
TWO = (X[:, 0] + X[:, 1] > 0).astype(int)


def forest(labels: np.ndarray) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(10, random_state=0).fit(X, labels)


@pytest.mark.parametrize(("labels", "classes"), [(THREE, 3), (TWO, 2)])
def test_probabilities_of_a_forest(load: Callable[..., Any], labels: np.ndarray, classes: int):
    model = forest(labels)
    instance = load(treelite.sklearn.import_model(model), 4, classes, **PROBABILITIES)
    (answer,) = ask(instance, X)
    assert answer.dtype == np.float32
    assert answer.shape == (200, classes)
    np.testing.assert_allclose(answer, model.predict_proba(X), atol=1e-6)


def test_requests_of_a_batch_each_get_their_own_rows(load: Callable[..., Any]):
    model = forest(THREE)
    instance = load(treelite.sklearn.import_model(model), 4, 3, **PROBABILITIES)
    one, two, three = ask(instance, X[:1], X[1:50], X[50:])
    np.testing.assert_allclose(np.vstack([one, two, three]), model.predict_proba(X), atol=1e-6)


def test_a_boosted_binary_model_gives_both_probabilities(load: Callable[..., Any]):
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=10).fit(X, TWO)
    checkpoint = treelite.frontend.from_xgboost(model.get_booster())
    (both,) = ask(load(checkpoint, 4, 2, **PROBABILITIES), X)
    np.testing.assert_allclose(both, model.predict_proba(X), atol=1e-5)
    (one,) = ask(load(checkpoint, 4, 1, **PROBABILITIES), X)
    np.testing.assert_allclose(one, model.predict_proba(X)[:, 1], atol=1e-5)


def test_classes_instead_of_probabilities(load: Callable[..., Any]):
    model = forest(THREE)
    parameters = {**PROBABILITIES, "predict_proba": "false"}
    (answer,) = ask(load(treelite.sklearn.import_model(model), 4, 1, **parameters), X)
    assert answer.shape == (200,)
    np.testing.assert_array_equal(answer, model.predict(X))


def test_a_regressor_comes_back_without_its_dimension_of_one(load: Callable[..., Any]):
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(10, random_state=0).fit(X, X[:, 0] * 3)
    (answer,) = ask(load(treelite.sklearn.import_model(model), 4, 1, is_classifier="false"), X)
    assert answer.shape == (200,)
    np.testing.assert_allclose(answer, model.predict(X), atol=1e-5)


@pytest.mark.parametrize(
    ("n_features", "n_outputs", "change", "message"),
    [
        (5, 3, {}, "input__0 has dims"),
        (4, 2, {}, "output__0 has dims"),
        (4, 3, {"threshold": "high"}, "threshold must be a number"),
        (4, 3, {"predict_proba": "yes"}, "predict_proba must be 'true' or 'false'"),
        (4, 3, {"model_type": "pickle"}, "no serialization format"),
        (4, 3, {"model_type": "xgboost_json"}, "Could not open model file"),
    ],
)
def test_what_the_genuine_backend_refuses_is_refused(
    load: Callable[..., Any], n_features: int, n_outputs: int, change: dict[str, str], message: str
):
    model = treelite.sklearn.import_model(forest(THREE))
    with pytest.raises(TritonModelException, match=message):
        load(model, n_features, n_outputs, **{**PROBABILITIES, **change})


def test_a_damaged_checkpoint_is_refused(load: Callable[..., Any], stand_in: Any, tmp_path: Path):
    load(treelite.sklearn.import_model(forest(THREE)), 4, 3, **PROBABILITIES)
    (tmp_path / "1" / "checkpoint.tl").write_bytes(b"no model")
    parameters = {"parameters": {"model_type": {"string_value": "treelite_checkpoint"}}}
    with pytest.raises(TritonModelException, match=r"checkpoint\.tl"):
        stand_in._load({}, stand_in.Parameters(parameters), tmp_path / "1")
