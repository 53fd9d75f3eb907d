"""The smallest size that loses nothing measurable: by a paired test, for any metric."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.training.size_choice import NestedSizes, choose_size

ROWS = 1000
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 2, ROWS)
NODES = np.array([[10, 30, 70], [20, 60, 140], [40, 120, 280]])


def classes(right: float, confidence: float = 0.8) -> np.ndarray:
    """Return probabilities whose class is right in a share of the rows."""
    hit = np.arange(ROWS) < right * ROWS
    second = np.where(hit == (CODES == 1), confidence, 1 - confidence)
    return np.stack([1 - second, second], axis=1)


def choose(predictions: list[list[np.ndarray]], metric: str, truth=CODES, *, sign: float = 1.0):
    found = np.array(predictions, np.float32).reshape(3, 3, ROWS, -1)
    sizes = NestedSizes((10, 20, 40), (1, 2, 3), NODES, found, truth)
    return choose_size(sizes, metric, sign=sign, classifier=found.shape[3] > 1, seed=0)


def test_of_equal_sizes_the_one_with_the_fewest_nodes():
    assert choose([[classes(0.9)] * 3] * 3, "accuracy") == (0, 0)


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_sizes_that_lose_are_passed_over(metric):
    shallow, deep = classes(0.8), classes(0.9)
    assert choose([[shallow, deep, deep]] * 3, metric) == (0, 1)
    assert choose([[shallow] * 3, [shallow, shallow, deep], [shallow, deep, deep]], metric) == (2, 1)
    assert choose([[shallow] * 3, [shallow] * 3, [shallow, shallow, deep]], metric) == (2, 2)


def test_equal_classes_with_coarser_probabilities_lose():
    coarse, exact = classes(0.9, 0.6), classes(0.9)
    assert choose([[coarse] * 3, [coarse] * 3, [coarse, coarse, exact]], "accuracy") == (2, 2)


def test_a_model_without_errors_gets_smaller_only_without_errors():
    exact = classes(1.0, 1.0)
    one_wrong = classes(1 - 1 / ROWS, 1.0)
    assert choose([[one_wrong] * 3, [one_wrong, exact, exact], [exact] * 3], "accuracy") == (2, 0)


@pytest.mark.parametrize(("metric", "sign"), [("r2", 1.0), ("rmse", -1.0), ("median_ae", -1.0)])
def test_values_in_either_direction_of_the_metric(metric, sign):
    truth = RNG.normal(size=ROWS)
    error = RNG.normal(size=ROWS)
    good, poor = truth + 0.3 * error, truth + 0.5 * error
    assert choose([[poor, good, good]] * 3, metric, truth, sign=sign) == (0, 1)


def test_where_the_metric_is_undefined_the_model_stays():
    assert choose([[classes(0.9)] * 3] * 3, "roc_auc", np.ones(ROWS, int)) == (2, 2)


def test_as_good_on_average_is_not_enough_where_other_rows_are_wrong():
    """With unrelated errors, chance alone may hide a loss: the paired difference is too uncertain."""
    truth, error = RNG.normal(size=ROWS), RNG.normal(size=ROWS)
    whole, other = truth + error, truth + error[::-1]
    assert choose([[other] * 3, [other] * 3, [other, other, whole]], "mae", truth, sign=-1.0) == (2, 2)
