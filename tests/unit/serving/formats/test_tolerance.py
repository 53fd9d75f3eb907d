"""The tolerance grows with the trees as errors of float32 sums do, and still finds a wrong model."""

from __future__ import annotations

import numpy as np
import pytest
import treelite
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from treelite.sklearn import import_model

from dmls_core.errors import ServingError
from dmls_core.serving.formats.tolerance import (
    LARGEST,
    PROBABILITY_TOLERANCE,
    VALUE_TOLERANCE,
    check_parity,
    model_tolerance,
    rows_that_differ,
)
from dmls_core.serving.formats.treelite import checkpoint

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 6)).astype(np.float32)
CLASSES = np.digitize(ROWS[:, 0] * ROWS[:, 1] + RNG.normal(size=200), [-0.7, 0.7])
SAME = np.zeros((5, 2))


@pytest.mark.parametrize(
    ("trees", "classification", "expected"),
    [
        (10, True, PROBABILITY_TOLERANCE),
        (10, False, VALUE_TOLERANCE),
        (5_000, True, 4 * 2**-24 * 5_000**0.5),
        (100_000, False, 4 * 2**-24 * 100_000**0.5),
        (100_000_000, True, LARGEST),
    ],
)
def test_it_grows_with_the_square_root_of_the_trees(trees: int, classification: bool, expected: float):
    assert model_tolerance(trees, SAME, SAME, classification=classification) == pytest.approx(expected)


def test_it_is_twice_the_error_of_the_model_itself():
    assert model_tolerance(10, SAME + 3e-5, SAME, classification=True) == pytest.approx(6e-5)
    # Relative to the largest value.
    assert model_tolerance(10, SAME + 2e3 + 0.1, SAME + 2e3, classification=False) == pytest.approx(1e-4)
    assert model_tolerance(10, SAME + 0.3, SAME, classification=True) == LARGEST


def many_trees(kind: str) -> tuple[np.ndarray, treelite.Model]:
    """Return a model's predictions in float64, and the model with thousands of trees."""
    if kind == "boosted":
        import lightgbm

        fitted = lightgbm.LGBMClassifier(
            n_estimators=1_500, num_leaves=4, learning_rate=0.02, min_child_samples=5, verbose=-1, n_jobs=1
        ).fit(ROWS, CLASSES)
        return fitted.predict_proba(ROWS), treelite.frontend.from_lightgbm(fitted.booster_)
    if kind == "forest":
        forest = RandomForestClassifier(50, max_depth=5, random_state=0).fit(ROWS, CLASSES)
        answers = forest.predict_proba(ROWS)
    else:
        forest = RandomForestRegressor(50, max_depth=5, random_state=0).fit(ROWS, 1e3 * ROWS[:, 0])
        answers = forest.predict(ROWS)
    # The mean of a forest's trees is that of the same trees a hundred times.
    return answers, treelite.Model.concatenate([import_model(forest)] * 100)


@pytest.mark.parametrize("kind", ["forest", "values", "boosted"])
def test_thousands_of_trees_agree_with_their_model(kind: str, tmp_path):
    own, model = many_trees(kind)
    assert model.num_tree >= 4_500
    loaded = checkpoint.export(model, tmp_path / "checkpoint.tl")
    served, tolerance = checkpoint.predict(loaded, ROWS), checkpoint.tolerance(loaded, ROWS[:100])

    check_parity(own, served, tolerance)
    if kind == "forest":
        with pytest.raises(ServingError, match="differs from the fitted model"):
            check_parity(own, served)
    served[7] += 4 * tolerance * np.abs(own).max()
    with pytest.raises(ServingError, match="in 1 of 200 rows; row 7"):
        check_parity(own, served, tolerance)


def test_a_tie_is_decided_by_rounding_only_where_that_is_asked_for():
    expected, got = np.array([[0.5, 0.5 - 4e-7]]), np.array([[0.5 - 4e-7, 0.5]])
    assert list(rows_that_differ(expected, got, classification=True)) == [0]
    assert not len(rows_that_differ(expected, got, classification=True, ties=True))
