"""Who goes on from a rung to the next."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.search.forest import halving


def test_all_configurations_together_get_about_a_third_of_a_forest():
    assert halving.first_rung_trees(500, 30, 100_000) == 10
    assert halving.first_rung_trees(500, 5, 100_000) == 33
    assert halving.first_rung_trees(500, 30, 2_000) == 18
    assert halving.first_rung_trees(500, 30, 150) == 24
    assert halving.first_rung_trees(20, 30, 150) == 20


def test_the_jackknife_finds_the_standard_error_of_a_mean():
    rng = np.random.default_rng(0)
    values = rng.normal(size=16_000)
    groups = np.arange(len(values)) % 16
    parts = np.array([values[groups != number].mean() for number in range(16)])

    assert halving.standard_error(parts) == pytest.approx(1 / np.sqrt(len(values)), rel=0.5)


def test_confidence():
    parts = np.array([0.1, 0.1, 0.3, 0.3])
    error = halving.standard_error(parts)

    assert halving.confidence_of(0.0, parts) == pytest.approx(0.5)
    assert halving.confidence_of(1.645 * error, parts) == pytest.approx(0.95, abs=1e-4)
    assert halving.confidence_of(0.1, np.zeros(4)) == 1.0
    assert halving.confidence_of(0.0, np.zeros(4)) == 0.5


def test_a_third_goes_on_at_most_and_none_that_is_surely_worse():
    rng = np.random.default_rng(0)
    noise = [rng.normal(scale=0.01, size=16) for _ in range(6)]

    kept, sure = halving.survivors([0.70, 0.72, 0.10, 0.71, 0.69, 0.68], noise)
    assert kept == [1, 3]
    assert sure[1] == 0.5
    assert sure[2] > 0.99

    kept, _ = halving.survivors([0.70, 0.72, 0.10, 0.11, 0.12, 0.13], [n / 100 for n in noise])
    assert kept == [1]


@pytest.mark.parametrize(
    ("trees", "expected"), [(8, 24), (24, 50), (33, 100), (50, 150), (100, 200), (150, 200), (200, 200)]
)
def test_a_rung_ends_at_the_size_of_the_space_that_is_nearest_to_three_times_as_many_trees(trees, expected):
    assert halving.next_size((50, 100, 150, 200), trees) == expected


def test_the_trees_ahead_are_those_of_the_rungs_to_come_and_of_the_winner():
    sizes = (50, 100, 150, 200)

    assert halving.remaining_trees(1, 50, sizes) == 150
    # Three go from 24 to 50, then one of them to 200.
    assert halving.remaining_trees(3, 24, sizes) == 3 * 26 + 150
    # Ten to 50, four of them to 150, two to 200, which is all there is.
    assert halving.remaining_trees(10, 24, sizes) == 10 * 26 + 4 * 100 + 2 * 50
    assert halving.remaining_trees(4, 200, sizes) == 0


def test_the_gain_of_the_last_trees_foretells_that_of_the_next():
    # A score that is 0.9 - 1 / trees, known as far as 24 trees.
    scores = {trees: 0.9 - 1 / trees for trees in (8, 12, 24)}
    assert halving.extrapolate(scores, 500) == pytest.approx(0.9 - 1 / 500)
    assert halving.remaining_gain(scores, 24) == pytest.approx(0.0)
    # Deep trees that vary are worse while they are few, and better in the end.
    varied, alike = {8: 0.80, 24: 0.90}, {8: 0.86, 24: 0.91}
    assert halving.extrapolate(varied, 500) > halving.extrapolate(alike, 500)
    # A third of its trees was never scored: what it has is what is known.
    assert halving.remaining_gain({24: 0.9}, 500) is None
    assert halving.extrapolate({24: 0.9}, 500) == 0.9


def test_a_forest_grows_on_while_the_rest_of_its_trees_may_tell():
    error = 0.02
    # From 100 trees to 300 it gained 0.01: a fifth of that is left until 500.
    assert not halving.converged({100: 0.90, 300: 0.91}, 500, error, 1.0)
    assert halving.converged({100: 0.90, 300: 0.904}, 500, error, 1.0)
    assert halving.converged({100: 0.90, 300: 0.899}, 500, error, 1.0)
    assert halving.converged({100: 0.90, 300: 0.90}, 500, 0.0, 1.0)
    # The less is left to grow, the less there is to gain.
    assert halving.converged({100: 0.90, 300: 0.91}, 320, error, 1.0)
    # Rows are out of bag for a third of the trees: a forest of 300 is three times as far as its score.
    assert halving.converged({100: 0.90, 300: 0.91}, 500, error, 0.37)
    # A third of its trees was never scored.
    assert not halving.converged({150: 0.90, 300: 0.90}, 500, error, 1.0)
