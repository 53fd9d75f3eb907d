"""Curves of the holdout."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dmls_core.evaluate import holdout


def test_many_classes_have_one_pooled_curve_with_a_bounded_number_of_rows(monkeypatch):
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 12, 3_000)
    prediction = generator.random((3_000, 12))
    prediction[np.arange(3_000), truth] += 0.3
    expected = roc_auc_score(np.eye(12)[truth], prediction, average="micro")

    ((whole,), _) = holdout.class_curves(truth, prediction)
    monkeypatch.setattr(holdout, "MAX_POOLED", 12 * 1_000)
    ((part,), _) = holdout.class_curves(truth, prediction)

    assert whole["area"] == pytest.approx(expected)
    assert part["area"] == pytest.approx(expected, abs=0.03)
    assert part["area"] != whole["area"]
