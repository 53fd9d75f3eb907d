"""Scores, curves and diagnostics on the holdout."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.inspection import permutation_importance
from sklearn.metrics import roc_auc_score

from dmls_core.evaluate import diagnose, diagnostics
from dmls_core.evaluate.diagnostics import permutation_importances
from tests.unit.evaluate.evidence import Case, evidence


def test_many_classes_have_one_pooled_curve_with_a_bounded_number_of_rows(monkeypatch):
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 12, 3_000)
    prediction = generator.random((3_000, 12))
    prediction[np.arange(3_000), truth] += 0.3
    expected = roc_auc_score(np.eye(12)[truth], prediction, average="micro")

    ((whole,), _) = diagnostics.class_curves(truth, prediction)
    monkeypatch.setattr(diagnostics, "MAX_POOLED", 12 * 1_000)
    ((part,), _) = diagnostics.class_curves(truth, prediction)

    assert whole["area"] == pytest.approx(expected)
    assert part["area"] == pytest.approx(expected, abs=0.03)
    assert part["area"] != whole["area"]


def test_permutation_importances_agree_with_scikit_learn():
    x, y = datasets.load_diabetes(return_X_y=True)
    x = x.astype(np.float32)
    forest = RandomForestRegressor(50, random_state=0).fit(x[:300], y[:300])

    found = permutation_importances(
        "r2", "maximize", x[300:], y[300:], forest.predict, range(x.shape[1]), trees=50, seed=0
    )

    reference = permutation_importance(forest, x[300:], y[300:], scoring="r2", n_repeats=20, random_state=1)
    means = [found[column][0] for column in range(x.shape[1])]
    spread = 3 * reference.importances_std / np.sqrt(5) + 0.005
    assert (np.abs(means - reference.importances_mean) < spread).all()


def test_a_permutation_importance_is_the_loss_from_permuting_that_column():
    x = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    truth = x[:, 0].astype(np.float64)

    found = permutation_importances(
        "rmse", "minimize", x, truth, lambda rows: rows[:, 0], [0, 2], trees=1, seed=3
    )

    shuffles = np.random.default_rng(3)
    losses = [np.sqrt(np.mean((x[shuffles.permutation(500), 0] - truth) ** 2)) for _ in range(5)]
    assert found[0] == pytest.approx((np.mean(losses), np.std(losses)))
    assert found[2] == (0, 0)


def test_large_models_use_fewer_rows():
    asked = []

    def predict(rows):
        asked.append(len(rows))
        return np.zeros(len(rows))

    x = np.zeros((5_000, 4), dtype=np.float32)
    permutation_importances("mae", "minimize", x, x[:, 0], predict, range(4), trees=2_000, seed=0)

    assert sum(asked) * 2_000 < 30_000_000


def test_wide_tables_use_fewer_rows(monkeypatch):
    asked = []

    def predict(rows):
        asked.append(len(rows))
        return np.zeros(len(rows))

    monkeypatch.setattr(diagnostics, "MAX_VALUES", 5 * 200 * 50)
    x = np.zeros((2_000, 50), dtype=np.float32)
    permutation_importances("mae", "minimize", x, x[:, 0], predict, range(2), trees=1, seed=0)

    assert asked == [200, 1_000, 1_000]


def test_iris_has_no_warnings():
    data = datasets.load_iris()
    x, order = data.data.astype(np.float32), np.random.default_rng(1).permutation(150)
    x, y = x[order], data.target[order]
    forest = RandomForestClassifier(50, random_state=0).fit(x[30:], y[30:])
    given = evidence(x, y, forest.predict_proba(x[:30]), rows=30, importances=forest.feature_importances_)

    found = diagnose(given, forest.predict_proba, trees=50)

    assert found.warnings == ()
    assert found.interval[0] <= forest.score(x[:30], y[:30]) <= found.interval[1]
    assert set(list(found.permutation)[:2]) == {"f2", "f3"}
    assert found.baseline < 0.6


def test_a_regression_has_scatter_residuals_and_calibration():
    case = Case(0, rows=3_000)

    found = diagnose(case.evidence, case.predict, trees=1)

    assert found.roc == found.recalls == []
    assert len(found.scatter["truth"]) == 1_500
    assert sum(found.residuals["rows"]) == 3_000
    assert found.calibration["rows"] == [300] * 10
    assert found.calibration["predicted"] == sorted(found.calibration["predicted"])


def test_curves_agree_with_scikit_learn_and_are_short():
    case = Case(3, rows=5_000)

    found = diagnose(case.evidence, case.predict, trees=1)

    for curve in found.roc:
        member = case.evidence.test_target == curve["code"]
        # The area over fewer points stays that of all.
        assert np.trapezoid(curve["y"], curve["x"]) == pytest.approx(curve["area"], abs=2e-3)
        assert len(curve["x"]) <= 200
        assert member.any()
    assert len(found.recalls) == 3
    assert sum(found.calibration["rows"]) == 5_000
