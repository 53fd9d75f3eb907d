"""When a model has decayed: found where it has, and no false alarm where chance alone is at work."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.evaluate.decay import MIN_ROWS, Trained, judge
from dmls_core.evaluate.intervals import bootstrap_interval
from dmls_core.models.metrics import compute

LABELS = ("no", "yes")


def answers(rows: int, right: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Truth, and probabilities of which a share is for the right class."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 2, rows)
    sure = draw.uniform(0.6, 0.9, rows)
    told = np.where(draw.random(rows) < right, truth, 1 - truth)
    second = np.where(told == 1, sure, 1 - sure)
    return truth, np.stack([1 - second, second], axis=1).astype(np.float32)


def trained(metric: str, rows: int, right: float, seed: int) -> Trained:
    truth, told = answers(rows, right, seed)
    direction = "minimize" if metric == "log_loss" else "maximize"
    interval = bootstrap_interval(metric, truth, told, seed=0)
    return Trained(metric, direction, compute(metric, truth, told), interval, rows, LABELS)


@pytest.mark.parametrize(
    ("metric", "held_out", "rows", "draws"),
    [("accuracy", 30, 400, 60), ("accuracy", 400, 120, 60), ("roc_auc", 100, 200, 20)],
)
def test_a_model_as_good_as_it_was_raises_no_alarm(metric, held_out, rows, draws):
    found = [
        judge(trained(metric, held_out, 0.95, 2 * seed), *answers(rows, 0.95, 2 * seed + 1)).verdict
        for seed in range(draws)
    ]
    assert found == ["steady"] * draws


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_a_model_that_lost_much_has_decayed(metric):
    decay = judge(trained(metric, 300, 0.95, 0), *answers(300, 0.75, 1))
    assert decay.verdict == "decayed"
    assert (decay.p_value, decay.growth) == (pytest.approx(0, abs=1e-3), pytest.approx(decay.growth))
    assert decay.growth > 0.1
    assert "has decayed" in decay.summary(3)


def test_a_loss_that_is_certain_and_small_is_no_decay():
    decay = judge(trained("accuracy", 200_000, 0.9, 0), *answers(200_000, 0.895, 1))
    assert decay.p_value < 1e-4
    assert decay.verdict == "steady"


def test_every_answer_wrong_is_a_decay_and_every_one_right_is_none():
    perfect = Trained("accuracy", "maximize", 1.0, (1.0, 1.0), 30, LABELS)
    truth, told = answers(200, 1.0, 0)
    assert judge(perfect, truth, told).verdict == "steady"
    assert judge(perfect, 1 - truth, told).verdict == "decayed"


def test_few_labels_are_not_judged_and_classes_that_are_not_known_count_as_missed():
    before = trained("accuracy", 300, 0.95, 0)
    truth, told = answers(MIN_ROWS - 1, 0.2, 1)
    few = judge(before, truth, told)
    assert (few.verdict, few.score) == ("too few rows", None)
    truth, told = answers(300, 1.0, 1)
    truth[:90] = len(LABELS)
    found = judge(before, truth, told)
    assert (found.verdict, found.unknown, found.score) == ("decayed", 90, pytest.approx(0.7))
    without = judge(trained("log_loss", 300, 1.0, 0), truth, told)
    assert (without.verdict, without.unknown, without.rows) == ("steady", 90, 210)


def test_a_regression_is_judged_by_its_metric_and_the_largest_error_by_the_mean_one():
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
    before = Trained.of(result)
    assert (before.metric, before.interval) == ("mae", None)
    assert judge(before, truth, near).verdict == "steady"
    assert judge(before, truth, far).verdict == "decayed"
    constant = Trained("roc_auc", "maximize", 0.9, None, 400, LABELS)
    assert judge(constant, np.zeros(200, int), answers(200, 1, 0)[1]).verdict == "not defined"
