from __future__ import annotations

import json

import numpy as np
import pytest
import treelite

from dmls_core.errors import PlatformError, ServingError
from dmls_core.serving.formats.treelite import checkpoint, onnx_export
from dmls_core.serving.formats.treelite.onnx_export import INPUT, to_onnx, write_onnx

RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(300, 6)).astype(np.float32)
CLASSES = (FEATURES[:, 0] > 0).astype(int) + (FEATURES[:, 1] > 0.5)
VALUES = (FEATURES[:, 0] * 3 + FEATURES[:, 2] ** 2).astype(np.float32)
WITH_GAPS = np.where(RNG.random(FEATURES.shape) < 0.2, np.float32(np.nan), FEATURES)


def forest(kind, target, **options):
    from sklearn import ensemble

    return treelite.sklearn.import_model(
        getattr(ensemble, kind)(20, random_state=0, **options).fit(FEATURES, target)
    )


def xgb(kind, target, **options):
    import xgboost

    fitted = getattr(xgboost, kind)(n_estimators=15, max_depth=3, **options).fit(WITH_GAPS, target)
    return treelite.frontend.from_xgboost(fitted.get_booster())


def lgb(kind, target, **options):
    import lightgbm

    fitted = getattr(lightgbm, kind)(n_estimators=15, verbose=-1, **options).fit(WITH_GAPS, target)
    return treelite.frontend.from_lightgbm(fitted.booster_)


MODELS = {
    "forest, three classes": lambda: forest("RandomForestClassifier", CLASSES),
    "forest, two classes": lambda: forest("ExtraTreesClassifier", CLASSES > 0),
    "forest, values": lambda: forest("RandomForestRegressor", VALUES),
    "XGBoost, three classes": lambda: xgb("XGBClassifier", CLASSES),
    "XGBoost, two classes": lambda: xgb("XGBClassifier", CLASSES > 0),
    "XGBoost, values": lambda: xgb("XGBRegressor", VALUES),
    "XGBoost, counts": lambda: xgb("XGBRegressor", CLASSES, objective="count:poisson"),
    "LightGBM, three classes": lambda: lgb("LGBMClassifier", CLASSES),
    "LightGBM, one class against the rest": lambda: lgb("LGBMClassifier", CLASSES, objective="multiclassova"),
    "LightGBM, averaged trees": lambda: lgb(
        "LGBMClassifier", CLASSES, boosting_type="rf", bagging_freq=1, bagging_fraction=0.5
    ),
    "LightGBM, two classes": lambda: lgb("LGBMClassifier", CLASSES > 0),
    "LightGBM, values": lambda: lgb("LGBMRegressor", VALUES),
}


@pytest.mark.parametrize("kind", MODELS)
def test_onnx_runtime_predicts_what_the_checkpoint_does(kind):
    import onnxruntime

    model = checkpoint.snap_thresholds(MODELS[kind]())
    rows = FEATURES if kind.startswith("forest") else WITH_GAPS
    session = onnxruntime.InferenceSession(to_onnx(model, {"model": "lab.parts"}).SerializeToString())
    (got,) = session.run(None, {INPUT: rows})
    expected = checkpoint.predict(model, rows).reshape(got.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert session.get_modelmeta().custom_metadata_map == {"model": "lab.parts"}


def folder_with(tmp_path, model, shift=0.0):
    served = checkpoint.export(model, tmp_path / "checkpoint.tl")
    expected = checkpoint.predict(served, FEATURES[:9]) + np.float32(shift)
    golden = {"encoded": FEATURES[:9].tolist(), "expected": expected.tolist()}
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    return tmp_path


def test_a_folder_becomes_one_file_that_answers_the_golden_rows(tmp_path):
    folder = folder_with(tmp_path, MODELS["XGBoost, three classes"]())
    assert write_onnx(folder, tmp_path / "model.onnx", {}) < 1e-6
    assert (tmp_path / "model.onnx").stat().st_size > 1000


def test_other_answers_than_the_golden_rows_are_an_error_that_names_the_row(tmp_path):
    folder = folder_with(tmp_path, MODELS["forest, values"](), shift=1.0)
    with pytest.raises(
        ServingError, match=r"differs from the checkpoint in 9 of 9 golden rows; row 0: expected"
    ):
        write_onnx(folder, tmp_path / "model.onnx", {})


def test_categorical_splits_are_refused():
    import lightgbm

    codes = RNG.integers(0, 12, size=(300, 1)).astype(np.float32)
    data = lightgbm.Dataset(codes, np.isin(codes[:, 0], [1, 4, 7, 9]) * 1.0, categorical_feature=[0])
    options = {"objective": "regression", "verbose": -1, "min_data_per_group": 1, "max_cat_to_onehot": 1}
    booster = lightgbm.train(options, data, 5)
    with pytest.raises(ServingError, match="cannot express the model's categorical splits"):
        to_onnx(treelite.frontend.from_lightgbm(booster), {})


def test_a_forest_beyond_the_format_is_refused(monkeypatch):
    monkeypatch.setattr(onnx_export, "MAX_NODES", 100)
    with pytest.raises(ServingError, match=r"nodes, more than an ONNX file holds \(100\)"):
        to_onnx(MODELS["forest, values"](), {})


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(PlatformError, match=r"needs the package onnxruntime: pip install 'dmls\[onnx\]'"):
        write_onnx(tmp_path, tmp_path / "model.onnx", {})
