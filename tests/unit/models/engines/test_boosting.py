"""Boosters that grow: what they predict on the way is what boosters of that size predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine

ROWS, SCORED, COLUMNS = 240, 60, 6
ROUNDS = (1, 4, 9, 20)

COMMON = {"n_estimators": 500, "learning_rate": 0.2, "subsample": 0.7, "colsample_bytree": 0.6}
SETTINGS = {
    "catboost": [
        {"depth": 3, "colsample_bylevel": 0.6},
        {"depth": 5, "random_strength": 2.0, "l2_leaf_reg": 1.0},
    ],
    "xgboost": [{"max_depth": 4}, {"max_depth": 2, "gamma": 0.1, "colsample_bylevel": 0.5}],
    "lightgbm": [
        {"min_child_samples": 3, "num_leaves": 8},
        {"min_child_samples": 40, "num_leaves": 31, "reg_alpha": 0.1},
        {"min_child_samples": 5, "boosting_type": "dart"},
    ],
}


def make_data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(classes)
    features = generator.normal(size=(ROWS + SCORED, COLUMNS)).astype(np.float32)
    value = features[:, 0] + features[:, 1] * features[:, 2] + 0.3 * generator.normal(size=len(features))
    features[generator.random(features.shape) < 0.05] = np.nan
    if not classes:
        return features, value
    return features, np.digitize(value, np.quantile(value, np.arange(1, classes) / classes)).astype(np.int32)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("family", ["catboost", "xgboost", "lightgbm"])
def test_shared_bins_give_the_trees_of_models_fitted_alone_with_fewer_rounds(family, classes):
    features, target = make_data(classes)
    model = CATALOGUE[f"{family}-{'classifier' if classes else 'regressor'}"]
    engine: Any = load_engine("cpu", model.name)
    options = {"n_classes": classes, "seed": 3, "threads": 2}
    fitted_on, scored = (features[:ROWS], target[:ROWS]), features[ROWS:]
    binned = engine.bin(model, COMMON, *fitted_on, scored, **options)
    for changes in SETTINGS[family]:
        alone = [
            engine.fit(model, {**COMMON, **changes, "n_estimators": rounds}, *fitted_on, **options)
            for rounds in ROUNDS
        ]
        growing = binned.start({**COMMON, **changes})
        for rounds, fitted in zip(ROUNDS, alone, strict=True):
            staged = growing.grow(rounds)

            assert staged.shape == ((SCORED, classes) if classes else (SCORED,))
            np.testing.assert_allclose(staged, fitted.predict(scored), rtol=2e-6, atol=2e-6)


def test_bins_depend_on_their_number_and_on_the_weights():
    boosted = CATALOGUE["xgboost-classifier"], CATALOGUE["lightgbm-classifier"]
    xgboost, lightgbm = (load_engine("cpu", model.name) for model in boosted)

    assert xgboost.binning(boosted[0], {"max_depth": 3}) == xgboost.binning(boosted[0], {"max_bin": 256})
    assert xgboost.binning(boosted[0], {"max_bin": 16}) != xgboost.binning(boosted[0], {})
    assert lightgbm.binning(boosted[1], {"num_leaves": 3}) == lightgbm.binning(boosted[1], {})
    assert lightgbm.binning(boosted[1], {"class_weight": "balanced"}) != lightgbm.binning(boosted[1], {})


def test_balanced_classes_and_few_bins_reach_the_trees():
    features, target = make_data(2)
    target[:ROWS][::3] = 0
    model = CATALOGUE["lightgbm-classifier"]
    engine: Any = load_engine("cpu", model.name)
    params = {"class_weight": "balanced", "max_bin": 7, "n_estimators": 12}
    options = {"n_classes": 2, "seed": 0, "threads": 1}

    binned = engine.bin(model, params, features[:ROWS], target[:ROWS], features[ROWS:], **options)
    alone = engine.fit(model, params, features[:ROWS], target[:ROWS], **options)

    np.testing.assert_allclose(binned.start(params).grow(12), alone.predict(features[ROWS:]), atol=2e-6)


def test_a_booster_that_finds_no_split_any_more_stops_growing():
    features, target = make_data(0)
    model = CATALOGUE["lightgbm-regressor"]
    engine: Any = load_engine("cpu", model.name)
    params = {"min_split_gain": 1e6}

    binned = engine.bin(
        model, params, features[:ROWS], target[:ROWS], features[ROWS:], n_classes=0, seed=0, threads=1
    )
    values = binned.start(params).grow(10_000)

    assert values == pytest.approx(np.full(SCORED, target[:ROWS].mean()))


def test_histograms_that_are_not_kept_are_found_anew(monkeypatch: pytest.MonkeyPatch):
    from dmls_core.models.engines import xgboost as module

    features, target = make_data(2)
    model = CATALOGUE["xgboost-classifier"]
    engine: Any = load_engine("cpu", model.name)
    settings = {"n_estimators": 10, "max_depth": 8, "min_child_weight": 0}
    options = {"n_classes": 2, "seed": 3, "threads": 2}
    whole = engine.fit(model, settings, features, target, **options)
    monkeypatch.setattr(module, "HISTOGRAM_BYTES", 1)

    few = engine.fit(model, settings, features, target, **options)

    assert '"max_cached_hist_node":"1"' in few.booster.save_config()
    assert '"grow_policy":"lossguide"' in few.booster.save_config()
    assert few.parameters()["grow_policy"] == "depthwise"
    np.testing.assert_allclose(few.predict(features), whole.predict(features), atol=1e-5)
