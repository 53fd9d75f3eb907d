from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import treelite
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from treelite.sklearn import import_model

from dmls_core.errors import ServingError
from dmls_core.serving import checkpoint
from dmls_core.training.model_folder import golden_answers

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
    answers, kept = golden_answers(path, ROWS, served)
    assert len(kept) > 150
    assert np.abs(answers - served.reshape(len(ROWS), -1)[kept]).max() <= 1e-6


def test_without_it_treelite_is_the_reference(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvforest", None)
    path, served = trained(RandomForestRegressor, ROWS[:, 0], tmp_path)
    answers, kept = golden_answers(path, ROWS, served)
    assert kept == list(range(200))
    assert np.array_equal(answers[:, 0], served)


class Summing:
    """ChampionPredictions like nvForest, with another class for some rows, as where two of them tie."""

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
        with pytest.raises(ServingError, match="different classes to every golden row"):
            golden_answers(path, ROWS, served)
        return
    answers, kept = golden_answers(path, ROWS, served)
    assert kept == list(range(tied, len(ROWS)))
    assert np.array_equal(answers, served[kept])
