"""Bootstrap intervals agree with theory; the comparison of champion and challenger follows its rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from dmls_core.evaluate import compare, comparison, compute
from dmls_core.evaluate.comparison import (
    MIN_RESAMPLES,
    PAIRED_ROWS,
    Comparison,
    Freshness,
    score_interval,
)
from dmls_core.models import METRICS
from dmls_core.models.metrics import metrics_of


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
    monkeypatch.setattr(comparison, "compute", lambda metric, *_: asked.append(metric) or 0.5)
    for classes in (2, 40, 1_000):
        for metric in ("average_precision", "accuracy"):
            prediction = np.full((100, classes), 1 / classes)
            assert score_interval(metric, np.arange(100) % classes, prediction, seed=0) == (0.5, 0.5)
    assert asked.count("average_precision") == 400 + 100 + 50
    assert asked.count("accuracy") == 3 * 400


def test_an_undefined_metric_has_no_interval():
    assert score_interval("roc_auc", np.zeros(20, dtype=int), np.full((20, 2), 0.5), seed=0) is None


ROW_COUNT = 400


def answers(truth: np.ndarray, right: float, seed: int, classes: int = 2) -> np.ndarray:
    """Return probabilities whose largest is the true class in a share of the rows."""
    generator = np.random.default_rng(seed)
    chosen = np.where(generator.random(len(truth)) < right, truth, (truth + 1) % classes)
    found = generator.uniform(0.01, 0.3, (len(truth), classes))
    found[np.arange(len(truth)), chosen] = 0.8
    return (found / found.sum(axis=1, keepdims=True)).astype(np.float32)


def compared(
    champion: float,
    challenger: float,
    *,
    rows: int = ROW_COUNT,
    margin: float = 0.0,
    seed: int = 1,
    fresh: Freshness = "all",
) -> Comparison:
    truth = np.arange(rows) % 2
    return compare(
        "accuracy",
        "maximize",
        truth,
        answers(truth, champion, seed),
        answers(truth, challenger, seed + 1),
        version=4,
        run_key="a" * 16,
        min_improvement=margin,
        fresh=fresh,
        seed=0,
    )


def test_a_clearly_better_challenger_wins_and_a_worse_one_does_not():
    better, worse = compared(0.7, 0.9), compared(0.9, 0.7)

    assert better.better
    assert better.probability == 1.0
    assert better.difference == pytest.approx(better.challenger_score - better.champion_score)
    assert better.interval[0] < better.difference < better.interval[1]
    assert not worse.better
    assert worse.difference < 0
    assert "worse by" in worse.reason


def test_equal_models_seldom_swap_and_identical_ones_never():
    outcomes = [compared(0.8, 0.8, seed=10 * number).better for number in range(40)]
    truth = np.arange(ROW_COUNT) % 2
    same = answers(truth, 0.8, 3)
    identical = compare(
        "accuracy",
        "maximize",
        truth,
        same,
        same,
        version=1,
        run_key="",
        min_improvement=0.0,
        fresh="all",
        seed=0,
    )

    assert sum(outcomes) <= 6  # 5 % of 40 are 2; a rule on the bare difference would swap about 20
    assert (identical.better, identical.probability, identical.difference) == (False, 0.0, 0.0)
    assert "equally good" in identical.reason


def test_min_improvement_moves_the_bar_both_ways():
    assert compared(0.7, 0.9, margin=0.1).better
    assert not compared(0.7, 0.9, margin=0.25).better
    slightly_worse = compared(0.9, 0.89, rows=4_000)
    assert not slightly_worse.better
    assert compared(0.9, 0.89, rows=4_000, margin=-0.05).better


def test_of_errors_less_is_better():
    generator = np.random.default_rng(0)
    truth = generator.normal(size=ROW_COUNT)
    noise = generator.normal(size=ROW_COUNT)

    found = compare(
        "rmse",
        "minimize",
        truth,
        truth + noise,
        truth + 0.5 * noise,
        version=1,
        run_key="",
        min_improvement=0.1,
        fresh="some",
        seed=0,
    )

    assert found.better
    assert found.difference == pytest.approx(found.champion_score / 2)
    assert "held-out rows that the champion was not trained on" in found.reason


@pytest.mark.parametrize(
    ("fresh", "caveat"), [("none", "was trained on some"), ("unknown", "may have been trained on some")]
)
def test_rows_that_the_champion_may_know_give_a_verdict_only_against_it(fresh, caveat):
    worse, better = compared(0.9, 0.7, fresh=fresh), compared(0.7, 0.9, fresh=fresh)

    assert (worse.conclusive, better.conclusive) == (False, True)
    assert "does not say which one is better, since the champion " + caveat in worse.reason
    assert not any(word in worse.reason for word in ("worse by", "interval", "probability"))
    assert "better by" in better.reason
    assert "although the champion " + caveat in better.reason
    fresh_enough = compared(0.9, 0.89, rows=4_000, margin=-0.05, fresh=fresh)
    assert (fresh_enough.better, fresh_enough.conclusive) == (True, False)
    assert "being at most 0.05 worse is 100.0%" in fresh_enough.reason


def test_a_difference_whose_interval_contains_zero_may_be_chance():
    close, clear = compared(0.8, 0.81), compared(0.7, 0.9)
    assert close.interval[0] < 0 < close.interval[1]
    assert "may be chance" in close.reason
    assert "may be chance" not in clear.reason


def test_every_metric_of_classes_is_compared(monkeypatch):
    monkeypatch.setattr(comparison, "PAIRED_RESAMPLES", MIN_RESAMPLES)
    classes = 3
    truth = np.arange(200) % classes
    champion, challenger = (answers(truth, right, 5, classes) for right in (0.5, 0.95))
    for name, metric in metrics_of("classification").items():
        found = compare(
            name,
            metric.direction,
            truth,
            champion,
            challenger,
            version=1,
            run_key="",
            min_improvement=0.0,
            fresh="unknown",
            seed=0,
        )
        assert found.better, name
        assert found.challenger_score == compute(name, truth, challenger)


def test_many_rows_are_drawn_in_part_and_the_interval_is_that_of_all():
    rows = 20 * PAIRED_ROWS
    found = compared(0.80, 0.80, rows=rows)
    # Of independent answers the difference of shares has this standard error.
    expected = 2 * 1.96 * math.sqrt(2 * 0.8 * 0.2 / rows)
    assert found.interval[1] - found.interval[0] == pytest.approx(expected, rel=0.35)


def test_the_same_seed_gives_the_same_numbers():
    assert compared(0.8, 0.85) == compared(0.8, 0.85)


def test_what_no_resample_defines_is_not_comparable():
    truth = np.zeros(50, dtype=np.int32)
    found = compare(
        "roc_auc",
        METRICS["roc_auc"].direction,
        truth,
        answers(truth, 0.9, 1),
        answers(truth, 0.9, 2),
        version=1,
        run_key="",
        min_improvement=0.0,
        fresh="all",
        seed=0,
    )
    assert (found.comparable, found.better) == (False, False)
    assert "roc_auc is not defined" in found.reason


def test_the_area_under_the_curve_is_scikit_learns():
    truth = np.arange(200) % 2
    found = np.round(answers(truth, 0.7, 3), 1)  # with ties
    assert compute("roc_auc", truth, found) == pytest.approx(roc_auc_score(truth, found[:, 1]))


@pytest.mark.parametrize("rows", [2_000, 40_000])
def test_the_interval_of_groups_counts_groups_instead_of_rows(rows):
    groups = np.arange(rows) // 20
    right = np.random.default_rng(0).uniform(size=rows // 20) < 0.8
    truth, prediction = np.ones(rows, int), np.eye(2)[right[groups].astype(int)]

    low, high = score_interval("accuracy", truth, prediction, seed=0, units=groups)

    share = right.mean()
    assert low < share < high
    error = np.sqrt(share * (1 - share) / (rows // 20))
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.2)
    own = score_interval("accuracy", truth, prediction, seed=0)
    assert own[1] - own[0] < (high - low) / 3


def test_a_comparison_weighs_rows():
    truth = np.arange(400) % 2
    champion, challenger = np.eye(2)[truth], np.eye(2)[truth]
    champion[:100], challenger[100:300] = 0.5, np.eye(2)[1 - truth[100:300]]
    common = {"version": 1, "run_key": "k", "min_improvement": 0.0, "fresh": "all", "seed": 0}
    weights = np.where(np.arange(400) < 100, 9.0, 0.5)

    plain = compare("accuracy", "maximize", truth, champion, challenger, **common)
    weighed = compare("accuracy", "maximize", truth, champion, challenger, weights=weights, **common)

    assert (plain.better, weighed.better) == (False, True)
    assert weighed.challenger_score == pytest.approx((900 + 50) / 1050)
