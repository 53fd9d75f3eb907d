"""Ensembles: one Treelite model predicts what the members predict on average."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import FittedEnsemble
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.testing.engines import make_data

WEIGHTS = (0.5, 0.3, 0.2)

SETTINGS = (
    {"n_estimators": 12, "max_depth": 4},
    {"n_estimators": 7, "max_depth": 2},
    {"n_estimators": 20, "max_depth": 6},
)

FAMILIES = ("random-forest", "extra-trees", "xgboost", "lightgbm")


def members(family: str, kind: str):
    """Return data and three models with different trees and, of XGBoost, different base scores."""
    data = make_data(kind)
    name = f"{family}-{'classifier' if data.n_classes else 'regressor'}"
    engine = load_engine("cpu", name)
    fitted = []
    for number, params in enumerate(SETTINGS):
        rows = np.arange(40 * number, len(data.x))
        fitted.append(
            engine.fit(
                CATALOGUE[name],
                params,
                data.x[rows],
                data.y[rows],
                n_classes=data.n_classes,
                seed=number,
                threads=1,
            )
        )
    return data, fitted


def mean(family: str, fitted, x):
    """Return the weighted mean of the predictions: of boosted classifiers, in log odds."""
    predictions = [model.predict(x).astype(np.float64) for model in fitted]
    boosted = family in ("xgboost", "lightgbm") and predictions[0].ndim == 2
    if boosted:
        predictions = [np.log(found) for found in predictions]
    found = np.average(predictions, axis=0, weights=WEIGHTS)
    return np.exp(found) / np.exp(found).sum(axis=1, keepdims=True) if boosted else found


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_checkpoint_predicts_the_weighted_mean_of_its_members(family, kind, tmp_path):
    data, fitted = members(family, kind)
    ensemble = FittedEnsemble(fitted, WEIGHTS)
    own, expected = ensemble.predict(data.x), mean(family, fitted, data.x)
    scale = 1 if data.n_classes else np.abs(expected).max()
    assert own.shape == fitted[0].predict(data.x).shape
    assert np.abs(own - expected).max() < 2e-6 * scale
    loaded = checkpoint.export(ensemble.to_treelite(), tmp_path / "checkpoint.tl")
    served = checkpoint.predict(loaded, data.x)
    assert np.abs(served - own).max() < 1e-6 * scale
    check_parity(own, served)
    assert loaded.num_tree == sum(model.to_treelite().num_tree for model in fitted)


@pytest.mark.parametrize("family", FAMILIES)
def test_importances_are_the_members_on_average(family):
    _, fitted = members(family, "multiclass")
    ensemble = FittedEnsemble(fitted, WEIGHTS)
    assert ensemble.importances().sum() == pytest.approx(1)
    assert np.allclose(
        ensemble.importances(), np.average([one.importances() for one in fitted], axis=0, weights=WEIGHTS)
    )
    assert ensemble.parameters() == fitted[0].parameters()


def test_margins_lead_to_the_predictions():
    for family in FAMILIES:
        for kind in ("binary", "multiclass", "regression"):
            data, (model, *_) = members(family, kind)
            found = model.from_margins(model.margins(data.x))
            assert np.allclose(found, model.predict(data.x), rtol=1e-5, atol=1e-6)
