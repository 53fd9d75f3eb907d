"""Warnings appear for faulty evaluations, and only for those."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmls_core.evaluate.checks import find_warnings
from tests.unit.evaluate.evidence import Case, evidence


def sure(codes: np.ndarray, classes: int) -> np.ndarray:
    return np.eye(classes)[codes]


def messages(given, interval=(0.8, 0.95), **changes) -> str:
    return "\n".join(find_warnings(replace(given, interval=interval, **changes)))


def test_faults_of_the_data_give_warnings():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(600, 4)).astype(np.float32)
    y = (draw.random(600) < 0.02).astype(int)
    x[:, 2] = 7
    x[:40] = x[300:340]
    given = evidence(x, y, sure(y[:100], 2), rows=100)

    found = messages(given)

    assert "40 of 100 held-out rows have the same features as a training row" in found
    assert "imbalanced: class 1 has" in found
    assert "Fewer than 5 rows of 'class 1' were held out" in found
    assert "'f2' has the same value in every training row" in found
    assert "imbalanced" not in messages(given, metric="balanced_accuracy")
    # Of a date, users know the column, and not its parts.
    assert "same value" not in messages(given, raw_names=["a", "when", "when", "b"])
    x[:, 1] = 3
    assert "'when' has the same value" in messages(given, raw_names=["a", "when", "when", "b"])


@pytest.mark.parametrize(
    ("task", "noise", "changes", "warned"),
    [
        ("classes", 0, {}, True),
        ("classes", 0, {"metric": "log_loss", "direction": "minimize"}, True),
        ("classes", 0.02, {}, False),
        ("numbers", 0, {}, True),
        ("numbers", 0.02, {"metric": "rmse", "direction": "minimize"}, True),
        ("numbers", 0.2, {}, False),
        ("one class", 0, {}, False),
    ],
)
def test_a_score_too_good_to_be_true_gives_a_warning(task, noise, changes, warned):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 3)).astype(np.float32)
    y = (
        x[:, 1].astype(float)
        if task == "numbers"
        else (x[:, 1] > (9 if task == "one class" else 0)).astype(int)
    )
    held = (
        y[:200] + noise * draw.normal(size=200) if task == "numbers" else y[:200] ^ (draw.random(200) < noise)
    )
    given = evidence(
        x, y, held if task == "numbers" else sure(held, 2), rows=200, importances=np.array([0.1, 0.9, 0])
    )

    found = messages(given, **changes)

    assert ("almost without error" in found) is warned
    assert not warned or "first of all 'f1', 'f0'." in found


def test_a_model_no_better_than_the_baseline_gives_a_warning():
    given = Case(2).evidence

    assert "not clearly better than no model" in messages(given, interval=(0.45, 0.6))
    assert "not clearly better" not in messages(given)


def test_a_search_score_far_above_the_holdout_gives_a_warning():
    given = Case(2).evidence

    assert "much better than on the holdout" in messages(given, interval=(0.7, 0.75), cv_score=0.9)
    assert "much better" not in messages(given, interval=(0.7, 0.75), cv_score=0.77)
    assert "much better" in messages(given, direction="minimize", interval=(0.7, 0.75), cv_score=0.5)


def test_few_rows_and_many_features_give_warnings():
    x = np.random.default_rng(0).normal(size=(40, 60)).astype(np.float32)
    y = np.arange(40) % 2
    given = evidence(x, y, sure(y[:10], 2), rows=10)

    found = messages(given)
    assert "Only 10 rows were held out" in found
    assert "more features (60) than training rows (30)" in found
