"""The lower bound that spares the leak check most of its trees."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.evaluate import leakage


def table(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return columns that tell the target better and better, some with ties or missing values, and it."""
    draw = np.random.default_rng(seed)
    target = draw.exponential(size=500) if kind == "numbers" else draw.choice([0, 1, 1, 1, 2], 500)
    columns = target[:, None] + draw.normal(size=(500, 6)) * target.std() * [3, 1, 0.3, 0.1, 0.03, 0]
    columns[:, 2] = columns[:, 2].round(1)
    columns[draw.random(500) < 0.1, 4] = np.nan
    return columns.astype(np.float32), target


@pytest.mark.parametrize("kind", ["classes", "numbers"])
@pytest.mark.parametrize("seed", range(3))
def test_no_tree_has_a_smaller_error_than_the_bound(kind: str, seed: int):
    columns, target = table(kind, seed)
    task = "regression" if kind == "numbers" else "classification"
    bounds = leakage.least_errors(task, columns, target)
    errors = [leakage.relative_error(task, column, target) for column in columns.T]
    assert (bounds <= np.array(errors) + 1e-9).all()
    assert bounds[0] > leakage.SMALL_ERROR[task]  # a column of noise needs no tree


def test_features_far_from_a_leak_need_no_tree(monkeypatch: pytest.MonkeyPatch):
    trees = []
    exact = leakage.relative_error
    monkeypatch.setattr(leakage, "relative_error", lambda *given: trees.append(1) or exact(*given))
    draw = np.random.default_rng(0)
    noise, target = draw.normal(size=(2_000, 5)).astype(np.float32), draw.integers(0, 2, 2_000)
    assert leakage.leaking_features("classification", noise, target, range(5), seed=0) == []
    assert not trees
    noise[:, 3] = target
    assert leakage.leaking_features("classification", noise, target, range(5), seed=0) == [3]
    assert len(trees) == 1
