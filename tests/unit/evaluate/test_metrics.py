"""Metrics agree with scikit-learn's scorers, and are defined in folds that lack a class."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import get_scorer

from dmls_core.errors import DataError
from dmls_core.evaluate import compute, score_holdout, scorer
from dmls_core.models import METRICS

SCORERS = {
    "rmse": "neg_root_mean_squared_error",
    "mae": "neg_mean_absolute_error",
    "median_ae": "neg_median_absolute_error",
    "mape": "neg_mean_absolute_percentage_error",
    "max_error": "neg_max_error",
    "log_loss": "neg_log_loss",
}


class Oracle:
    """A fitted classifier or regressor, as scikit-learn's scorers want it, that answers ``prediction``."""

    def __init__(self, prediction: np.ndarray) -> None:
        self.prediction = prediction
        self._estimator_type = "regressor" if prediction.ndim == 1 else "classifier"
        self.classes_ = np.arange(prediction.shape[-1])

    def __sklearn_tags__(self):
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

        mixin = RegressorMixin if self.prediction.ndim == 1 else ClassifierMixin
        return type("Tagged", (mixin, BaseEstimator), {})().__sklearn_tags__()

    def fit(self, *_: object) -> Oracle:
        return self

    def predict(self, _: object) -> np.ndarray:
        return self.prediction if self.prediction.ndim == 1 else self.prediction.argmax(axis=1)

    def predict_proba(self, _: object) -> np.ndarray:
        return self.prediction


def probabilities(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, rows)
    raw = rng.random((rows, classes)) + np.eye(classes)[truth] * 0.5
    return truth, raw / raw.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", [n for n, m in METRICS.items() if m.task == "classification"])
@pytest.mark.parametrize("classes", [2, 4])
def test_classification_metrics_are_scikit_learns(name: str, classes: int):
    truth, found = probabilities(60, classes)
    scikit = SCORERS.get(name, "roc_auc_ovr" if name == "roc_auc" and classes > 2 else name)

    theirs = get_scorer(scikit)(Oracle(found), np.zeros((60, 1)), truth)

    sign = -1 if scikit.startswith("neg_") else 1
    assert compute(name, truth, found) == pytest.approx(sign * theirs)


@pytest.mark.parametrize("name", [n for n, m in METRICS.items() if m.task == "regression"])
def test_regression_metrics_are_scikit_learns(name: str):
    rng = np.random.default_rng(0)
    truth = rng.normal(5, 2, 50)
    found = truth + rng.normal(0, 1, 50)
    scikit = SCORERS.get(name, name)

    theirs = get_scorer(scikit)(Oracle(found), np.zeros((50, 1)), truth)

    sign = -1 if scikit.startswith("neg_") else 1
    assert compute(name, truth, found) == pytest.approx(sign * theirs)


@pytest.mark.parametrize("name", [n for n, m in METRICS.items() if m.task == "classification"])
def test_a_fold_without_one_of_the_classes_is_scored_quietly(name: str, recwarn):
    truth, found = probabilities(60, 4)
    rows = truth != 2

    value = compute(name, truth[rows], found[rows].astype(np.float32))

    assert np.isfinite(value)
    # Files that earlier tests left open may be collected here.
    assert [str(one.message) for one in recwarn if one.category is not ResourceWarning] == []


def test_a_metric_that_is_not_defined_is_the_users_to_know():
    truth, found = np.zeros(5, int), np.full((5, 2), 0.5)

    with pytest.raises(DataError, match="roc_auc is not defined for 5 held-out rows"):
        scorer("roc_auc")(truth, found)


def test_holdout_of_a_classification():
    truth, found = probabilities(200, 3)

    scores = score_holdout("classification", "f1_macro", truth, found)

    confusion = np.array(scores.confusion)
    assert scores.score == scores.metrics["f1_macro"]
    assert confusion.sum() == 200
    assert (confusion.sum(axis=1) == np.bincount(truth)).all()
    assert confusion.trace() / 200 == pytest.approx(scores.metrics["accuracy"])
    assert scores.residuals is None


def test_holdout_of_a_regression():
    truth = np.arange(101.0)

    scores = score_holdout("regression", "mae", truth, (truth + np.linspace(-5, 5, 101)).astype(np.float32))

    assert scores.confusion is None
    assert scores.residuals == pytest.approx([-5, -4.5, -2.5, 0, 2.5, 4.5, 5], abs=1e-5)
    assert scores.score == pytest.approx(2.5, abs=0.1)


def test_holdout_leaves_out_what_is_not_defined():
    scores = score_holdout("classification", "accuracy", np.zeros(5, int), np.full((5, 2), 0.5))

    assert "roc_auc" not in scores.metrics
    assert scores.metrics["accuracy"] == 1.0


@pytest.mark.parametrize("classes", [0, 2, 4])
def test_a_weight_counts_like_repeated_rows(classes):
    generator = np.random.default_rng(classes)
    repeats = generator.integers(0, 4, 60)
    truth = generator.integers(0, classes, 60) if classes else generator.normal(1, size=60)
    prediction = generator.dirichlet(np.ones(classes), 60) if classes else generator.normal(1, size=60)
    task = "classification" if classes else "regression"
    names = [name for name, metric in METRICS.items() if metric.task == task and metric.weighted]

    for name in names:
        found = compute(name, truth, prediction, repeats.astype(float))
        repeated = compute(name, truth.repeat(repeats), prediction.repeat(repeats, axis=0))
        if name == "median_ae":  # of an even number of rows, only one of two has the mean of the middle ones
            assert found == pytest.approx(repeated, rel=0.1)
        else:
            assert found == pytest.approx(repeated, rel=1e-9), name
    assert len(names) > 4


def test_a_metric_without_weights_is_not_defined_for_them():
    truth = np.arange(10.0)
    assert np.isnan(compute("max_error", truth, truth, np.ones(10)))
    assert "max_error" not in score_holdout("regression", "r2", truth, truth, np.ones(10)).metrics
    assert np.isnan(compute("r2", truth, truth, np.zeros(10)))
