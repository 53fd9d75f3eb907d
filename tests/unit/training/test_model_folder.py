from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import treelite
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from treelite.sklearn import import_model

from dmls_core.errors import ServingError, UserError
from dmls_core.models.engines import Engine, Fitted
from dmls_core.serving import checkpoint
from dmls_core.serving.forest_size import check_size
from dmls_core.training.model_folder import export_model, golden_predictions

ROWS = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)


def trained(kind, target, folder):
    """Return a checkpoint, and Treelite's answers to the rows."""
    model = checkpoint.export(
        import_model(kind(20, random_state=0).fit(ROWS, target)), folder / "checkpoint.tl"
    )
    return folder / "checkpoint.tl", checkpoint.predict(model, ROWS)


@pytest.mark.parametrize("kind", ["two classes", "three classes", "values"])
def test_nvforest_in_single_precision_answers_within_a_millionth(kind, tmp_path):
    pytest.importorskip("nvforest", reason="nvforest is not installed")
    value = ROWS[:, 0] * ROWS[:, 1]
    model = RandomForestRegressor if kind == "values" else RandomForestClassifier
    target = {"two classes": value > 0, "three classes": np.digitize(value, [-0.5, 0.5]), "values": value}[
        kind
    ]
    path, served = trained(model, target, tmp_path)
    predicted, kept = golden_predictions(path, ROWS, served)
    assert len(kept) > 150
    assert np.abs(predicted - served.reshape(len(ROWS), -1)[kept]).max() <= 1e-6


def test_without_it_treelite_is_the_reference(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvforest", None)
    path, served = trained(RandomForestRegressor, ROWS[:, 0], tmp_path)
    predicted, kept = golden_predictions(path, ROWS, served)
    assert kept == list(range(200))
    assert np.array_equal(predicted[:, 0], served)


class Summing:
    """Predicts like nvForest, with another class for some rows, as where two of them tie."""

    def __init__(self, path, tied):
        self._model, self._tied = treelite.Model.deserialize(path), tied

    def predict_proba(self, rows):
        found = treelite.gtil.predict(self._model, rows).reshape(len(rows), -1)
        found[: self._tied] = found[: self._tied, ::-1]
        return found


@pytest.mark.parametrize("tied", [3, 200])
def test_rows_whose_class_is_a_matter_of_precision_are_left_out(tied, tmp_path, monkeypatch):
    library = SimpleNamespace(load_model=lambda path, **_: Summing(path, tied))
    monkeypatch.setitem(sys.modules, "nvforest", library)
    path, served = trained(RandomForestClassifier, ROWS[:, 0] > 0, tmp_path)
    if tied == len(ROWS):
        with pytest.raises(ServingError, match="different classes for every golden row"):
            golden_predictions(path, ROWS, served)
        return
    predicted, kept = golden_predictions(path, ROWS, served)
    assert kept == list(range(tied, len(ROWS)))
    assert np.array_equal(predicted, served[kept])


class Linear(Fitted):
    """A model that is not trees; ``error`` is what its file gets wrong."""

    def __init__(self, error: float = 0.0):
        self._weights, self._error = np.arange(4.0, dtype=np.float32), error

    def predict(self, features):
        return features @ self._weights

    def importances(self):
        return self._weights / self._weights.sum()

    def parameters(self):
        return {}

    def export(self, folder):
        np.save(folder / "weights.npy", self._weights + self._error)
        weights = np.load(folder / "weights.npy")
        return lambda features: features @ weights


class LinearEngine(Engine):
    name, device, models, packages, libraries = "linear", "cpu", (), (), ()
    export_format = "npy"

    def fit(self, *_arguments, **_options):
        return Linear()


def test_an_engine_exports_a_format_of_its_own(tmp_path):
    fitted, folder = LinearEngine().fit(), tmp_path / "model"

    served = export_model(LinearEngine(), fitted, ROWS, fitted.predict(ROWS), folder, threads=1)

    assert [path.name for path in folder.iterdir()] == ["weights.npy"]
    assert np.array_equal(served, fitted.predict(ROWS))
    kept, rows = golden_predictions(folder / "checkpoint.tl", ROWS, served)
    assert np.array_equal(kept[:, 0], served)
    assert len(rows) == len(ROWS)


def test_files_of_any_format_are_compared_with_the_model(tmp_path):
    fitted = Linear(error=0.1)
    with pytest.raises(ServingError, match="differs from the model"):
        export_model(LinearEngine(), fitted, ROWS, fitted.predict(ROWS), tmp_path / "model", threads=1)


def test_triton_rejects_a_model_that_is_not_trees(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps({"format": "npy"}))
    with pytest.raises(UserError, match="lab.iris has the format 'npy': Triton's FIL backend"):
        check_size("lab.iris", tmp_path)
