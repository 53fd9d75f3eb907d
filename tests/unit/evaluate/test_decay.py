"""Decay is found where a model has decayed, without false alarms from chance."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.evaluate.comparison import score_interval
from dmls_core.evaluate.decay import MIN_ROWS, TrainingScore, evaluate_decay
from dmls_core.models.metrics import compute

LABELS = ("no", "yes")


def predictions(rows: int, right: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Truth, and probabilities of which a share is for the right class."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 2, rows)
    sure = draw.uniform(0.6, 0.9, rows)
    predicted = np.where(draw.random(rows) < right, truth, 1 - truth)
    second = np.where(predicted == 1, sure, 1 - sure)
    return truth, np.stack([1 - second, second], axis=1).astype(np.float32)


def trained(metric: str, rows: int, right: float, seed: int) -> TrainingScore:
    truth, predicted = predictions(rows, right, seed)
    direction = "minimize" if metric == "log_loss" else "maximize"
    interval = score_interval(metric, truth, predicted, seed=0)
    return TrainingScore(metric, direction, compute(metric, truth, predicted), interval, rows, LABELS)


@pytest.mark.parametrize(
    "draws", [10, pytest.param(60, marks=pytest.mark.nightly("60 draws of three metrics take 6 s"))]
)
@pytest.mark.parametrize(
    ("metric", "held_out", "rows"), [("accuracy", 30, 400), ("accuracy", 400, 120), ("roc_auc", 100, 200)]
)
def test_an_unchanged_model_has_not_decayed(metric, held_out, rows, draws):
    found = [
        evaluate_decay(
            trained(metric, held_out, 0.95, 2 * seed), *predictions(rows, 0.95, 2 * seed + 1)
        ).verdict
        for seed in range(draws)
    ]
    assert found == ["steady"] * draws


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_a_large_loss_is_decay(metric):
    decay = evaluate_decay(trained(metric, 300, 0.95, 0), *predictions(300, 0.75, 1))
    assert decay.verdict == "decayed"
    assert (decay.p_value, decay.growth) == (pytest.approx(0, abs=1e-3), pytest.approx(decay.growth))
    assert decay.growth > 0.1
    assert "has decayed" in decay.summary(3)


def test_a_significant_but_small_loss_is_no_decay():
    decay = evaluate_decay(trained("accuracy", 200_000, 0.9, 0), *predictions(200_000, 0.895, 1))
    assert decay.p_value < 1e-4
    assert decay.verdict == "steady"


def test_all_predictions_wrong_is_decay_and_all_right_is_none():
    perfect = TrainingScore("accuracy", "maximize", 1.0, (1.0, 1.0), 30, LABELS)
    truth, predicted = predictions(200, 1.0, 0)
    assert evaluate_decay(perfect, truth, predicted).verdict == "steady"
    assert evaluate_decay(perfect, 1 - truth, predicted).verdict == "decayed"


def test_few_labels_have_no_verdict_and_unknown_classes_count_as_errors():
    before = trained("accuracy", 300, 0.95, 0)
    truth, predicted = predictions(MIN_ROWS - 1, 0.2, 1)
    few = evaluate_decay(before, truth, predicted)
    assert (few.verdict, few.score) == ("too few rows", None)
    truth, predicted = predictions(300, 1.0, 1)
    truth[:90] = len(LABELS)
    found = evaluate_decay(before, truth, predicted)
    assert (found.verdict, found.unknown, found.score) == ("decayed", 90, pytest.approx(0.7))
    without = evaluate_decay(trained("log_loss", 300, 1.0, 0), truth, predicted)
    assert (without.verdict, without.unknown, without.rows) == ("steady", 90, 210)


def test_a_regression_uses_its_metric_and_mae_instead_of_max_error():
    draw = np.random.default_rng(0)
    truth = draw.normal(size=400)
    near, far = (truth + draw.normal(size=400) * size for size in (0.2, 0.6))
    result = {
        "metric": "max_error",
        "direction": "minimize",
        "score": 0.6,
        "holdout": {"metrics": {"mae": compute("mae", truth, near)}, "interval": [0.5, 0.7]},
        "data": {"holdout_rows": 400},
        "labels": None,
    }
    before = TrainingScore.from_result(result)
    assert (before.metric, before.interval) == ("mae", None)
    assert evaluate_decay(before, truth, near).verdict == "steady"
    assert evaluate_decay(before, truth, far).verdict == "decayed"
    constant = TrainingScore("roc_auc", "maximize", 0.9, None, 400, LABELS)
    assert evaluate_decay(constant, np.zeros(200, int), predictions(200, 1, 0)[1]).verdict == "not defined"
