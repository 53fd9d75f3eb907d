"""Who goes on from a rung to the next."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.search.nested import rungs


def test_all_configurations_together_get_about_a_third_of_a_forest():
    assert rungs.first_rung(500, 30, 100_000) == 10
    assert rungs.first_rung(500, 5, 100_000) == 33
    assert rungs.first_rung(500, 30, 1_500) == 32
    assert rungs.first_rung(500, 30, 150) == 64
    assert rungs.first_rung(20, 30, 150) == 20


def test_the_jackknife_finds_the_standard_error_of_a_mean():
    rng = np.random.default_rng(0)
    values = rng.normal(size=16_000)
    groups = np.arange(len(values)) % 16
    parts = np.array([values[groups != number].mean() for number in range(16)])

    assert rungs.standard_error(parts) == pytest.approx(1 / np.sqrt(len(values)), rel=0.5)


def test_certainty():
    parts = np.array([0.1, 0.1, 0.3, 0.3])
    error = rungs.standard_error(parts)

    assert rungs.certainty(0.0, parts) == pytest.approx(0.5)
    assert rungs.certainty(1.645 * error, parts) == pytest.approx(0.95, abs=1e-4)
    assert rungs.certainty(0.1, np.zeros(4)) == 1.0
    assert rungs.certainty(0.0, np.zeros(4)) == 0.5


def test_a_third_goes_on_at_most_and_none_that_is_surely_worse():
    rng = np.random.default_rng(0)
    noise = [rng.normal(scale=0.01, size=16) for _ in range(6)]

    kept, sure = rungs.remaining([0.70, 0.72, 0.10, 0.71, 0.69, 0.68], noise)
    assert kept == [1, 3]
    assert sure[1] == 0.5
    assert sure[2] > 0.99

    kept, _ = rungs.remaining([0.70, 0.72, 0.10, 0.11, 0.12, 0.13], [n / 100 for n in noise])
    assert kept == [1]


def test_a_forest_grows_on_while_the_rest_of_its_trees_may_tell():
    error = 0.01
    # From 100 trees to 300 it gained 0.01: a fifth of that is left until 500.
    assert not rungs.converged({100: 0.90, 300: 0.91}, 500, error)
    assert rungs.converged({100: 0.90, 300: 0.904}, 500, error)
    assert rungs.converged({100: 0.90, 300: 0.899}, 500, error)
    assert rungs.converged({100: 0.90, 300: 0.90}, 500, 0.0)
    # The less is left to grow, the less there is to gain.
    assert rungs.converged({100: 0.90, 300: 0.91}, 320, error)
    # A third of its trees was never scored.
    assert not rungs.converged({150: 0.90, 300: 0.90}, 500, error)
