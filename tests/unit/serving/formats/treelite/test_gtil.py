"""Predictions in float32, and the tolerance that follows from them, for many trees."""

from __future__ import annotations

import numpy as np
import pytest
import treelite
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from treelite.sklearn import import_model

from dmls_core.serving.formats.treelite.gtil import predict_float32, predict_float64

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, 4)).astype(np.float32)
CLASSES = np.digitize(ROWS[:, 0] * ROWS[:, 1] + RNG.normal(size=300) / 2, [-0.5, 0.5])


def by_hand(model: treelite.Model, rows: np.ndarray) -> np.ndarray:
    """Add the trees' answers one by one in float32, in their order."""
    trees = treelite.gtil.predict_per_tree(model, rows)
    total = np.zeros((len(rows), trees.shape[2]), np.float32)
    for number in range(trees.shape[1]):
        total += trees[:, number].astype(np.float32)
    return total / np.float32(trees.shape[1])


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_trees_are_added_in_single_precision(kind: str):
    if kind == "classes":
        model = import_model(ExtraTreesClassifier(300, max_depth=4, random_state=0).fit(ROWS, CLASSES))
    else:
        model = import_model(ExtraTreesRegressor(300, max_depth=4, random_state=0).fit(ROWS, ROWS[:, 0]))
    found = predict_float32(model, ROWS)
    double = predict_float64(model, ROWS)

    assert found.dtype == np.float32
    assert found.shape == double.shape == (300, 3 if kind == "classes" else 1)
    np.testing.assert_array_equal(found, by_hand(model, ROWS))
    np.testing.assert_array_equal(double, treelite.gtil.predict(model, ROWS).reshape(double.shape))
    assert 0 < np.abs(found - double).max() < 1e-5


def test_a_model_with_float32_leaves_keeps_its_answers():
    import xgboost

    fitted = xgboost.XGBClassifier(n_estimators=20).fit(ROWS, CLASSES)
    model = treelite.frontend.from_xgboost(fitted.get_booster())
    np.testing.assert_array_equal(
        predict_float32(model, ROWS), treelite.gtil.predict(model, ROWS).reshape(300, 3)
    )


@pytest.mark.parametrize("shape", [(5, 3), (5, 5), (4,)])
def test_rows_of_another_width_are_an_error(shape: tuple[int, ...]):
    model = import_model(ExtraTreesClassifier(2, random_state=0).fit(ROWS, CLASSES))
    with pytest.raises(ValueError, match="4 features, but the rows have shape"):
        predict_float32(model, np.zeros(shape))


def test_no_rows():
    model = import_model(ExtraTreesClassifier(2, random_state=0).fit(ROWS, CLASSES))
    assert predict_float32(model, ROWS[:0]).shape == (0, 3)
