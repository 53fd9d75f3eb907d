"""The files of a model, and the description of its size."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import treelite
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from treelite.sklearn import import_model

from dmls_core.data.split.row_roles import RowRoles
from dmls_core.errors import ServingError, UserError
from dmls_core.models import CATALOGUE
from dmls_core.models.engines import Engine, Fitted
from dmls_core.models.metrics import compute
from dmls_core.serving.formats.base import export_format
from dmls_core.serving.formats.model_check import check_size
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.formats.treelite.forest_size import forest_size
from dmls_core.serving.formats.treelite.serving_format import TreeliteFormat
from dmls_core.training.model_folder import describe_size, export_model, golden_predictions

ROWS = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)


def trained(kind, target, folder):
    """Write a checkpoint; return the answers of nvForest, if it is there, and of Treelite."""
    model = checkpoint.export(
        import_model(kind(20, random_state=0).fit(ROWS, target)), folder / "checkpoint.tl"
    )
    return TreeliteFormat().reference(folder, ROWS), checkpoint.predict(model, ROWS)


def test_without_it_treelite_is_the_reference(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvforest", None)
    reference, served = trained(RandomForestRegressor, ROWS[:, 0], tmp_path)
    predicted, kept = golden_predictions(reference, served)
    assert kept == list(range(200))
    assert np.array_equal(predicted[:, 0], served)


class Summing:
    """Predicts like nvForest, with another class for some rows, as where two of them tie."""

    def __init__(self, model, tied):
        self._model, self._tied = model, tied

    def predict_proba(self, rows):
        found = treelite.gtil.predict(self._model, rows).reshape(len(rows), -1)
        found[: self._tied] = found[: self._tied, ::-1]
        return found


@pytest.mark.parametrize("tied", [3, 200])
def test_rows_whose_class_is_a_matter_of_precision_are_left_out(tied, tmp_path, monkeypatch):
    library = SimpleNamespace(load_from_treelite_model=lambda model, **_: Summing(model, tied))
    monkeypatch.setitem(sys.modules, "nvforest", library)
    reference, served = trained(RandomForestClassifier, ROWS[:, 0] > 0, tmp_path)
    if tied == len(ROWS):
        with pytest.raises(ServingError, match="different classes for every golden row"):
            golden_predictions(reference, served)
        return
    predicted, kept = golden_predictions(reference, served)
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

    served = export_model(
        LinearEngine(), fitted, ROWS, fitted.predict(ROWS), ROWS[:0], folder, threads=1
    ).predictions

    assert [path.name for path in folder.iterdir()] == ["weights.npy"]
    assert np.array_equal(served, fitted.predict(ROWS))
    kept, rows = golden_predictions(export_format("npy").reference(folder, ROWS), served)
    assert np.array_equal(kept[:, 0], served)
    assert len(rows) == len(ROWS)


def test_files_of_any_format_are_compared_with_the_model(tmp_path):
    fitted = Linear(error=0.1)
    with pytest.raises(ServingError, match="differs from the fitted model"):
        export_model(
            LinearEngine(), fitted, ROWS, fitted.predict(ROWS), ROWS[:0], tmp_path / "model", threads=1
        )


def test_triton_rejects_a_model_that_is_not_trees(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps({"format": "npy"}))
    with pytest.raises(UserError, match="lab.iris has the format 'npy', which no installed package serves"):
        check_size(tmp_path, "lab.iris")


LABELS = ("no", "yes")


def grown(metric, x, target, **options):
    kind = RandomForestRegressor if metric == "r2" else RandomForestClassifier
    return kind(20, random_state=0, **options).fit(x, target)


@pytest.fixture(params=["accuracy", "log_loss", "r2"])
def run(request, tmp_path):
    """A forest of full depth on data that need a depth of two, with its folder; and how it is scored."""
    metric = request.param
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)).astype(np.float32)
    target = np.where(x[:, 0] > 0, 2.0, -2.0) + np.where(x[:, 1] > 0, 1.0, -1.0) + rng.normal(size=3000)
    if metric != "r2":
        target = (target > 0).astype(int)
    model = import_model(grown(metric, x[:1500], target[:1500]))
    model.serialize(tmp_path / "checkpoint.tl")
    (tmp_path / "size.json").write_text(json.dumps(forest_size(model)))
    (tmp_path / "model.json").write_text("{}")
    data = SimpleNamespace(
        train=x[:1500],
        train_target=target[:1500],
        test=x[1500:],
        test_target=target[1500:],
        test_roles=RowRoles(),
        labels=None if metric == "r2" else LABELS,
    )
    task = SimpleNamespace(
        engine=SimpleNamespace(export_format="treelite"),
        model=CATALOGUE[f"random-forest-{'regressor' if metric == 'r2' else 'classifier'}"],
        direction="minimize" if metric == "log_loss" else "maximize",
        seed=0,
    )
    return task, data, metric, tmp_path


def test_a_depth_is_offered_that_loses_nothing_on_the_rows_held_out(run, monkeypatch):
    task, data, metric, folder = run
    size = describe_size(data, task, metric, folder, large=0)
    enough = size["enough"]
    depth = enough["max_depth"]
    assert (size["trees"], size["bytes"]) == (20, (folder / "checkpoint.tl").stat().st_size)
    assert 1 <= depth < size["depth"]
    assert enough["bytes"] < 0.5 * size["bytes"]
    assert enough["nodes"] == json.loads((folder / "size.json").read_text())["nodes_to_depth"][depth]
    assert (enough["rows"], enough["trees"]) == (1500, 20)
    worse = enough["whole_score"] - enough["score"]
    assert (-worse if metric == "log_loss" else worse) < 0.02
    # A forest that is grown no deeper does score so.
    forest = grown(metric, data.train, data.train_target, max_depth=depth)
    answers = forest.predict(data.test) if metric == "r2" else forest.predict_proba(data.test)
    assert compute(metric, data.test_target, answers) == pytest.approx(enough["score"], abs=0.03)
    monkeypatch.setenv("DMLS_SERVING_CHECKPOINT_BYTES", "1000")
    with pytest.raises(UserError, match=f"at depth {depth} .* they lose nothing that can be measured"):
        check_size(folder, "lab.iris")


@pytest.mark.parametrize("run", ["accuracy"], indirect=True)
def test_for_a_small_model_no_depth_is_looked_for(run):
    task, data, metric, folder = run
    assert describe_size(data, task, metric, folder)["enough"] is None
    assert "enough" not in json.loads((folder / "size.json").read_text())
