"""Warnings appear for faulty evaluations, and only for those."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn import datasets

from dmls_core.evaluate.checks import find_warnings
from dmls_core.evaluate.leakage import leaking_features
from tests.unit.evaluate.evidence import Case, evidence

GOOD = ["iris", "wine", "breast_cancer", "digits", "diabetes"]


def load(name: str):
    data = getattr(datasets, f"load_{name}")()
    task = "regression" if name == "diabetes" else "classification"
    return task, data.data.astype(np.float32), data.target


@pytest.mark.parametrize("name", GOOD)
def test_informative_features_are_no_leaks(name: str):
    task, x, y = load(name)
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(y))[: len(y) * 4 // 5]
        assert leaking_features(task, x[rows], y[rows], range(min(25, x.shape[1])), seed=seed) == []


@pytest.mark.parametrize("name", GOOD)
def test_a_feature_derived_from_the_target_is_a_leak(name: str):
    task, x, y = load(name)
    leak = y + np.random.default_rng(0).normal(size=len(y)) * y.std() * 0.05
    columns = np.column_stack([x, leak]).astype(np.float32)

    last = x.shape[1]
    assert leaking_features(task, columns, y, [last, *range(min(20, last))], seed=0) == [last]


def test_two_leaks_do_not_hide_each_other():
    task, x, y = load("wine")
    columns = np.column_stack([x, y * 2.5, -y]).astype(np.float32)

    assert leaking_features(task, columns, y, [13, 14, *range(13)], seed=0) == [13, 14]


def test_a_leak_of_a_rare_class_is_found():
    draw = np.random.default_rng(0)
    y = (draw.random(3_000) < 0.03).astype(int)
    x = draw.normal(size=(3_000, 3)).astype(np.float32)
    x[:, 1] = y

    assert leaking_features("classification", x, y, [0, 1, 2], seed=0) == [1]


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


def test_the_warning_names_the_leaking_feature():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 3)).astype(np.float32)
    y = draw.integers(0, 2, 400)
    x[:, 1] = y * 2 - 5
    given = evidence(x, y, sure(y[:100], 2), rows=100)

    assert "'f1' alone nearly determines the target." in messages(given)
    assert "'when' alone nearly determines the target." in messages(given, raw_names=["a", "when", "when"])


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
