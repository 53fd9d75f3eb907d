"""Bootstrap intervals agree with theory and stay affordable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dmls_core.evaluate import bootstrap
from dmls_core.evaluate.bootstrap import score_interval


def test_the_interval_of_an_accuracy_agrees_with_the_binomial_distribution():
    truth = np.zeros(300, dtype=int)
    prediction = np.eye(2)[(np.arange(300) % 10 == 0).astype(int)]

    low, high = score_interval("accuracy", truth, prediction, seed=0)

    expected = stats.binom(300, 0.9).interval(0.95)
    assert (low * 300, high * 300) == pytest.approx(expected, abs=3)


def test_the_interval_of_many_rows_has_the_width_of_all_rows():
    truth = np.zeros(40_000, dtype=int)
    prediction = np.eye(2)[(np.arange(40_000) % 10 == 0).astype(int)]

    low, high = score_interval("accuracy", truth, prediction, seed=0)

    deviation = np.sqrt(0.9 * 0.1 / 40_000)
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.15)
    assert low < 0.9 < high
    assert score_interval("accuracy", truth, prediction, seed=0) == (low, high)


def test_per_class_metrics_use_fewer_resamples_for_many_classes(monkeypatch):
    asked = []
    monkeypatch.setattr(bootstrap, "compute", lambda metric, *_: asked.append(metric) or 0.5)
    for classes in (2, 40, 1_000):
        for metric in ("average_precision", "accuracy"):
            prediction = np.full((100, classes), 1 / classes)
            assert score_interval(metric, np.arange(100) % classes, prediction, seed=0) == (0.5, 0.5)
    assert asked.count("average_precision") == 400 + 100 + 50
    assert asked.count("accuracy") == 3 * 400


def test_an_undefined_metric_has_no_interval():
    assert score_interval("roc_auc", np.zeros(20, dtype=int), np.full((20, 2), 0.5), seed=0) is None
