"""What stands behind a score: its interval, permutation importances, leaks and other warnings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.inspection import permutation_importance
from sklearn.metrics import roc_auc_score

from dmls_core.evaluate import curves, examine, intervals
from dmls_core.evaluate.checks import warnings_of
from dmls_core.evaluate.intervals import bootstrap_interval
from dmls_core.evaluate.leakage import suspects
from dmls_core.evaluate.permutation import permutation_importances
from tests.unit.evaluate.evidence import Case, evidence


def test_the_interval_of_an_accuracy_is_the_binomial_one():
    truth = np.zeros(300, dtype=int)
    prediction = np.eye(2)[(np.arange(300) % 10 == 0).astype(int)]

    low, high = bootstrap_interval("accuracy", truth, prediction, seed=0)

    expected = stats.binom(300, 0.9).interval(0.95)
    assert (low * 300, high * 300) == pytest.approx(expected, abs=3)


def test_the_interval_of_many_rows_is_as_narrow_as_their_number_allows():
    truth = np.zeros(40_000, dtype=int)
    prediction = np.eye(2)[(np.arange(40_000) % 10 == 0).astype(int)]

    low, high = bootstrap_interval("accuracy", truth, prediction, seed=0)

    deviation = np.sqrt(0.9 * 0.1 / 40_000)
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.15)
    assert low < 0.9 < high
    assert bootstrap_interval("accuracy", truth, prediction, seed=0) == (low, high)


def test_many_classes_get_fewer_resamples_where_each_is_a_metric_of_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr(intervals, "compute", lambda metric, *_: asked.append(metric) or 0.5)
    for classes in (2, 40, 1_000):
        for metric in ("average_precision", "accuracy"):
            prediction = np.full((100, classes), 1 / classes)
            assert bootstrap_interval(metric, np.arange(100) % classes, prediction, seed=0) == (0.5, 0.5)
    assert asked.count("average_precision") == 400 + 100 + 50
    assert asked.count("accuracy") == 3 * 400


def test_a_metric_that_the_rows_do_not_define_has_no_interval():
    assert bootstrap_interval("roc_auc", np.zeros(20, dtype=int), np.full((20, 2), 0.5), seed=0) is None


def test_many_classes_have_one_curve_of_all_pooled_of_some_rows_if_these_are_many(monkeypatch):
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 12, 3_000)
    prediction = generator.random((3_000, 12))
    prediction[np.arange(3_000), truth] += 0.3
    expected = roc_auc_score(np.eye(12)[truth], prediction, average="micro")

    ((whole,), _) = curves.class_curves(truth, prediction)
    monkeypatch.setattr(curves, "POOLED", 12 * 1_000)
    ((part,), _) = curves.class_curves(truth, prediction)

    assert whole["area"] == pytest.approx(expected)
    assert part["area"] == pytest.approx(expected, abs=0.03)
    assert part["area"] != whole["area"]


def test_permutation_importances_agree_with_scikit_learns():
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


def test_a_permutation_importance_is_what_shuffling_that_column_alone_loses():
    x = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    truth = x[:, 0].astype(np.float64)

    found = permutation_importances(
        "rmse", "minimize", x, truth, lambda rows: rows[:, 0], [0, 2], trees=1, seed=3
    )

    shuffles = np.random.default_rng(3)
    losses = [np.sqrt(np.mean((x[shuffles.permutation(500), 0] - truth) ** 2)) for _ in range(5)]
    assert found[0] == pytest.approx((np.mean(losses), np.std(losses)))
    assert found[2] == (0, 0)


def test_of_a_large_model_fewer_rows_are_asked():
    asked = []

    def predict(rows):
        asked.append(len(rows))
        return np.zeros(len(rows))

    x = np.zeros((5_000, 4), dtype=np.float32)
    permutation_importances("mae", "minimize", x, x[:, 0], predict, range(4), trees=2_000, seed=0)

    assert sum(asked) * 2_000 < 30_000_000


GOOD = ["iris", "wine", "breast_cancer", "digits", "diabetes"]


def load(name: str):
    data = getattr(datasets, f"load_{name}")()
    task = "regression" if name == "diabetes" else "classification"
    return task, data.data.astype(np.float32), data.target


@pytest.mark.parametrize("name", GOOD)
def test_good_features_are_no_suspects(name: str):
    task, x, y = load(name)
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(y))[: len(y) * 4 // 5]
        assert suspects(task, x[rows], y[rows], range(min(25, x.shape[1])), seed=seed) == []


@pytest.mark.parametrize("name", GOOD)
def test_a_feature_made_from_the_target_is_a_suspect(name: str):
    task, x, y = load(name)
    leak = y + np.random.default_rng(0).normal(size=len(y)) * y.std() * 0.05
    columns = np.column_stack([x, leak]).astype(np.float32)

    last = x.shape[1]
    assert suspects(task, columns, y, [last, *range(min(20, last))], seed=0) == [last]


def test_two_leaks_hide_each_other_not():
    task, x, y = load("wine")
    columns = np.column_stack([x, y * 2.5, -y]).astype(np.float32)

    assert suspects(task, columns, y, [13, 14, *range(13)], seed=0) == [13, 14]


def test_a_leak_of_a_rare_class_is_found():
    draw = np.random.default_rng(0)
    y = (draw.random(3_000) < 0.03).astype(int)
    x = draw.normal(size=(3_000, 3)).astype(np.float32)
    x[:, 1] = y

    assert suspects("classification", x, y, [0, 1, 2], seed=0) == [1]


def test_iris_has_no_warning_at_all():
    data = datasets.load_iris()
    x, order = data.data.astype(np.float32), np.random.default_rng(1).permutation(150)
    x, y = x[order], data.target[order]
    forest = RandomForestClassifier(50, random_state=0).fit(x[30:], y[30:])
    given = evidence(x, y, forest.predict_proba(x[:30]), rows=30, importances=forest.feature_importances_)

    insight = examine(given, forest.predict_proba, trees=50)

    assert insight.warnings == ()
    assert insight.interval[0] <= forest.score(x[:30], y[:30]) <= insight.interval[1]
    assert set(list(insight.permutation)[:2]) == {"f2", "f3"}
    assert insight.baseline < 0.6


def sure(codes: np.ndarray, classes: int) -> np.ndarray:
    return np.eye(classes)[codes]


def messages(given, interval=(0.8, 0.95), **changes) -> str:
    return "\n".join(warnings_of(replace(given, interval=interval, **changes)))


def test_what_is_wrong_with_the_data_is_said():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(600, 4)).astype(np.float32)
    y = (draw.random(600) < 0.02).astype(int)
    x[:, 2] = 7
    x[:40] = x[300:340]
    given = evidence(x, y, sure(y[:100], 2), rows=100)

    found = messages(given)

    assert "40 of 100 held-out rows have the same features as a training row" in found
    assert "far from balanced: class 1 has" in found
    assert "Fewer than 5 rows of 'class 1' were held out" in found
    assert "'f2' has the same value in every training row" in found
    assert "far from balanced" not in messages(given, metric="balanced_accuracy")


def test_a_leak_is_named():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 3)).astype(np.float32)
    y = draw.integers(0, 2, 400)
    x[:, 1] = y * 2 - 5
    given = evidence(x, y, sure(y[:100], 2), rows=100)

    assert "'f1' alone nearly tells the target." in messages(given)


def test_a_model_that_knows_nothing_is_told_from_one_that_does():
    given = Case(2).evidence

    assert "not clearly better than no model" in messages(given, interval=(0.45, 0.6))
    assert "not clearly better" not in messages(given)


def test_a_search_that_looks_too_good_is_told():
    given = Case(2).evidence

    assert "far better than the holdout" in messages(given, interval=(0.7, 0.75), cv_score=0.9)
    assert "far better" not in messages(given, interval=(0.7, 0.75), cv_score=0.77)
    assert "far better" in messages(given, direction="minimize", interval=(0.7, 0.75), cv_score=0.5)


def test_few_rows_and_many_features_are_told():
    x = np.random.default_rng(0).normal(size=(40, 60)).astype(np.float32)
    y = np.arange(40) % 2
    given = evidence(x, y, sure(y[:10], 2), rows=10)

    found = messages(given)
    assert "Only 10 rows were held out" in found
    assert "more features (60) than training rows (30)" in found


def test_a_regression_has_its_own_points():
    case = Case(0, rows=3_000)

    insight = examine(case.evidence, case.predict, trees=1)

    assert insight.roc == insight.recalls == []
    assert len(insight.scatter["truth"]) == 1_500
    assert sum(insight.residuals["rows"]) == 3_000
    assert insight.calibration["rows"] == [300] * 10
    assert insight.calibration["predicted"] == sorted(insight.calibration["predicted"])


def test_curves_are_scikit_learns_and_stay_short():
    case = Case(3, rows=5_000)

    insight = examine(case.evidence, case.predict, trees=1)

    for curve in insight.roc:
        member = case.evidence.test_target == curve["code"]
        # The area over fewer points stays that of all.
        assert np.trapezoid(curve["y"], curve["x"]) == pytest.approx(curve["area"], abs=2e-3)
        assert len(curve["x"]) <= 200
        assert member.any()
    assert len(insight.recalls) == 3
    assert sum(insight.calibration["rows"]) == 5_000
